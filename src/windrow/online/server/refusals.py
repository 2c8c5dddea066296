"""What is said to a client that cannot have what it asks for.

Every refusal has the same body: `{"error": {"code": ..., "message": ...}}`. Codes are stable;
messages are for people, and say what is wrong with the request, never what is inside the server.
"""

from __future__ import annotations

import msgspec

from windrow.errors import (
    NotServedError,
    RequestError,
    StaleError,
    StorageUnavailableError,
    WindrowError,
)

Headers = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
RETRY = (b"retry-after", b"1")

# Of each code: the status of HTTP.
CODES = {
    "bad_request": 400,
    "unauthorized": 401,
    "not_found": 404,
    "method_not_allowed": 405,
    "timeout": 408,
    "too_large": 413,
    "head_too_large": 431,
    "internal": 500,
    "busy": 503,
    "stale": 503,
    "unavailable": 503,
    "not_ready": 503,
    "too_slow": 504,
}


class Problem(msgspec.Struct, omit_defaults=True):
    """What went wrong; `id` is that of the line in the log that says more."""

    code: str
    message: str
    id: str = ""


class Problems(msgspec.Struct):
    """The body of every refusal."""

    error: Problem


class Refusal(Exception):  # noqa: N818 (it is an answer)
    """Ends a request with a refusal."""

    def __init__(self, code: str, message: str, *, id: str = "", headers: Headers | None = None):
        super().__init__(message)
        self.code, self.id = code, id
        self.status = CODES[code]
        self.headers = [JSON, *(headers or [])]

    @property
    def body(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(Problems(Problem(self.code, str(self), self.id)))


def of_error(error: WindrowError) -> Refusal | None:
    """The refusal for an error that is the client's, or the store's; None for any other."""
    if isinstance(error, RequestError):
        return Refusal("bad_request", str(error))
    if isinstance(error, NotServedError):  # which may say where the store is
        return Refusal(
            "not_found", "nothing is served under this name; GET /v1/features lists what is"
        )
    if isinstance(error, StaleError):
        return Refusal("stale", str(error), headers=[RETRY])
    if isinstance(error, StorageUnavailableError):
        return Refusal(
            "unavailable",
            "the online store cannot be reached right now; try again later",
            headers=[RETRY],
        )
    return None


def of_decoding(error: Exception) -> Refusal:
    """The refusal for a body that is not JSON, or not of the form that is asked for."""
    if isinstance(error, RecursionError):
        return Refusal("bad_request", "the body is nested too deeply")
    text = str(error).replace("`", "'")
    return Refusal("bad_request", f"the body is not as expected: {text}")


def bare(refusal: Refusal) -> bytes:
    """A whole answer, for a client that sent no request that could be answered."""
    phrase = {
        400: b"Bad Request",
        408: b"Request Timeout",
        431: b"Request Header Fields Too Large",
    }
    body = refusal.body
    head = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    head %= (refusal.status, phrase.get(refusal.status, b"Service Unavailable"), len(body))
    return head + b"connection: close\r\n\r\n" + body
