"""Failures as OpenAI's clients expect them."""

from typing import Any, Final

from k31ctl.errors import K31Error

_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class ApiError(Exception):
    """An answer other than success."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    def document(self) -> dict[str, Any]:
        """The body of the answer."""
        kind = _TYPES.get(self.status, "server_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}


def bad_request(error: K31Error) -> ApiError:
    """The answer to a request whose field is wrong."""
    return ApiError(400, f"{error.where} {error.what}: {error.remedy}", param=error.where)


def stopping() -> ApiError:
    """The answer to a request that is open while the server ends."""
    return ApiError(503, "the server is stopping: ask again once it is back")
