"""Whether an endpoint is there, what it says of itself, and how many tokens a text has there."""

import json
import re
import ssl
from collections.abc import Callable
from typing import Any, Final

from k31ctl.bench.ask import Address, Answer, ask, resolve
from k31ctl.bench.endpoint import Endpoint
from k31ctl.bench.events import Server
from k31ctl.bench.trouble import Trouble, TroubleError
from k31ctl.errors import EndpointError
from k31ctl.outside_json import parsed

_OK: Final = 200
_TIMEOUT_S: Final = 10.0
_SHORT_TIMEOUT_S: Final = 2.0


class Line:
    """An endpoint with the address that it answers at."""

    def __init__(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
        self.endpoint, self.context = endpoint, context
        self.address: Address = (0, ("", 0))

    def dial(self) -> Answer:
        """Find an address that answers, with its list of models; raises EndpointError."""
        trouble: TroubleError | None = None
        for address in resolve(self.endpoint):
            self.address = address
            try:
                return self.ask("GET", f"{self.endpoint.base}/models")
            except TroubleError as found:
                trouble = found
        assert trouble is not None
        raise unreachable(self.endpoint, trouble)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        timeout_s: float = _TIMEOUT_S,
        enough: Callable[[bytes], bool] | None = None,
    ) -> Answer:
        """Put one question; raises TroubleError."""
        return ask(
            self.endpoint,
            self.address,
            self.context,
            method=method,
            path=path,
            body=body,
            timeout_s=timeout_s,
            enough=enough,
        )


def unreachable(endpoint: Endpoint, trouble: TroubleError) -> EndpointError:
    """Say that an endpoint cannot be reached, and what may help."""
    remedy = {
        Trouble.CONNECT: "check that the server runs and that the port is right",
        Trouble.TLS: "name the authority's certificates in SSL_CERT_FILE, or use http://",
        Trouble.PROXY: "check the proxy variables, or set no_proxy for this host",
        Trouble.BAD_HTTP: "check that the port speaks HTTP, and not HTTPS",
    }.get(trouble.kind, "check that the server is up and not overloaded")
    return EndpointError(
        f"the endpoint cannot be reached: {trouble.detail}", where=endpoint.url, remedy=remedy
    )


def look(line: Line, model: str | None) -> Server:
    """Ask what is served; raises EndpointError where nothing answers or the model is not there."""
    answer = line.dial()
    listed = _models(answer)
    if answer.status in (401, 403):
        raise EndpointError(
            f"the endpoint refuses us: status {answer.status}",
            where=line.endpoint.url,
            remedy="put the key into the variable that --api-key-env names",
        )
    names = tuple(str(entry["id"]) for entry in listed)
    chosen = model or (names[0] if names else None)
    if chosen is None:
        raise EndpointError(
            f"the endpoint lists no models: status {answer.status} for {line.endpoint.base}/models",
            where=line.endpoint.url,
            remedy="check the URL, or name the model with --model",
        )
    if names and chosen not in names:
        raise EndpointError(
            f"the endpoint does not serve {chosen}",
            where=line.endpoint.url,
            remedy=f"--model is one of: {', '.join(names[:8])}",
        )
    lengths = [e.get("max_model_len") for e in listed if e["id"] == chosen]
    return Server(
        url=line.endpoint.url,
        model=chosen,
        models=names,
        max_model_len=lengths[0] if lengths and isinstance(lengths[0], int) else None,
        version=_version(line),
        software=answer.headers.get("server"),
    )


def _models(answer: Answer) -> list[dict[str, Any]]:
    try:
        found = parsed(answer.body)["data"]
        return [e for e in found if isinstance(e, dict) and isinstance(e.get("id"), str)]
    except (ValueError, KeyError, TypeError):
        return []


def _version(line: Line) -> str | None:
    try:
        answer = line.ask("GET", f"{line.endpoint.root}/version", timeout_s=_SHORT_TIMEOUT_S)
        found = parsed(answer.body)["version"] if answer.status == _OK else None
    except (TroubleError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) and re.fullmatch(r"[\w.+-]{1,60}", found) else None


class TokenCounter:
    """Counts tokens by the endpoint's own ``/tokenize`` (vLLM, SGLang), where it has one."""

    def __init__(self, line: Line, model: str) -> None:
        self._line, self._model = line, model
        self.is_there = self.count("time year") is not None

    def count(self, text: str) -> int | None:
        """Return how many tokens a text has, None where the endpoint does not tell."""
        body = json.dumps(
            {"model": self._model, "prompt": text, "add_special_tokens": False}
        ).encode()
        path = f"{self._line.endpoint.root}/tokenize"
        try:
            answer = self._line.ask("POST", path, body)
            document = parsed(answer.body) if answer.status == _OK else {}
        except (TroubleError, ValueError):
            return None
        count = document.get("count") if isinstance(document, dict) else None
        return count if isinstance(count, int) and count > 0 else None
