"""What can go wrong with one request, by kind."""

from enum import StrEnum


class Trouble(StrEnum):
    """Why a request does not count as answered; a status other than 200 is ``http_STATUS``."""

    CONNECT = "connect"
    TLS = "tls"
    PROXY = "proxy"
    TIMEOUT = "timeout"
    GAP_TIMEOUT = "gap_timeout"
    RESET = "reset"
    CUT = "cut"
    BAD_HTTP = "bad_http"
    BAD_JSON = "bad_json"
    BAD_USAGE = "bad_usage"
    ERROR_EVENT = "error_event"
    OVERSIZED = "oversized"
    ENDLESS = "endless"
    NO_TOKENS = "no_tokens"
    ABANDONED = "abandoned"


class TroubleError(Exception):
    """A request cannot go on; never leaves this room."""

    def __init__(self, kind: Trouble, detail: str) -> None:
        super().__init__(detail)
        self.kind, self.detail = kind, detail
