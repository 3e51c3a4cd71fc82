"""Errors of the API server as types that callers act on.

Every error chains its cause (`__cause__` is the transport's exception where there was one). The tree says
what to do: `Conflict` re-read and retry, `Expired` list again, `TooManyRequests` and `Unavailable` wait,
`NotFound` is often an answer, `Forbidden` and `Invalid` need an administrator.
"""

from collections.abc import Mapping

import msgspec


class ClusterError(Exception):
    """Anything this package raises on purpose."""


class NotConfigured(ClusterError):
    """There is neither a kubeconfig nor a service account."""


class Undecodable(ClusterError):
    """The server's answer does not fit the type asked for."""


class Withheld(ClusterError):
    """The request was not sent, or not again: its sender may not write any more."""


class ApiError(ClusterError):
    """The API server refused, or could not be asked.

    `status` is the HTTP status (0 when no answer arrived), `reason` the machine-readable reason of the
    Status object, `causes` its `(type, message)` details, `retry_after_seconds` what the server asked for.
    `ambiguous` is True when the request may have taken effect although no answer says so.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        causes: tuple[tuple[str, str], ...] = (),
        retry_after_seconds: float | None = None,
        ambiguous: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.causes = causes
        self.retry_after_seconds = retry_after_seconds
        self.ambiguous = ambiguous

    @property
    def message(self) -> str:
        """The server's own message."""
        return str(self.args[0])


class NotFound(ApiError):
    """404: the object, its namespace or its kind does not exist."""


class Conflict(ApiError):
    """409: the object changed since it was read, or a precondition does not hold."""


class AlreadyExists(Conflict):
    """409 on create: an object of that name exists."""


class Expired(ApiError):
    """410: the resource version or continue token is too old; list again."""


class Invalid(ApiError):
    """400, 405, 415 or 422: the request itself is wrong; repeating it cannot help."""


class Forbidden(ApiError):
    """403: the account lacks a permission or an admission rule refuses."""


class Unauthorized(Forbidden):
    """401: the credentials are missing or no longer valid."""


class TooManyRequests(ApiError):
    """429: the server sheds load, or a disruption budget says not yet."""


class Unavailable(ApiError):
    """5xx, a refused or dropped connection, or no answer in time."""


class _StatusCause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _StatusDetails(msgspec.Struct, frozen=True):
    causes: tuple[_StatusCause, ...] = ()
    retryAfterSeconds: float = 0  # noqa: N815 - the wire's spelling


class Status(msgspec.Struct, frozen=True):
    """The API's `Status` object, as error bodies and watch ERROR events carry it."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None


_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: Invalid,
    406: Invalid,
    409: Conflict,
    410: Expired,
    415: Invalid,
    422: Invalid,
    429: TooManyRequests,
}

_STATUS_DECODER = msgspec.json.Decoder(Status)


def error_type(status: int, reason: str) -> type[ApiError]:
    """Return the error type for an HTTP status and a Status reason."""
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists
    if reason == "Expired":
        return Expired
    if status >= 500:
        return Unavailable
    return _BY_STATUS.get(status, ApiError)


def from_response(status: int, body: bytes, headers: Mapping[str, str], where: str) -> ApiError:
    """Return the error for an unsuccessful response; `where` names method and path for the message.

    A body that is no Status object (a proxy's page) still gives the error of its HTTP status.
    """
    try:
        answer = _STATUS_DECODER.decode(body)
    except msgspec.DecodeError:
        answer = Status(code=status, message=body[:200].decode("utf-8", "replace"))
    return from_status(answer, where, status=status, retry_after=_seconds(headers.get("Retry-After")))


def from_status(answer: Status, where: str, *, status: int = 0, retry_after: float | None = None) -> ApiError:
    """Return the error for a Status object; `status` overrides its code, `retry_after` its details."""
    code = status or answer.code
    causes: tuple[tuple[str, str], ...] = ()
    if answer.details is not None:
        causes = tuple((cause.reason, cause.message) for cause in answer.details.causes)
        if retry_after is None and answer.details.retryAfterSeconds > 0:
            retry_after = answer.details.retryAfterSeconds
    return error_type(code, answer.reason)(
        f"{where}: {code} {answer.reason or 'error'}: {answer.message}",
        status=code,
        reason=answer.reason,
        causes=causes,
        retry_after_seconds=retry_after,
        # A 5xx can be sent after the write reached storage (a timeout between the server and etcd).
        ambiguous=code >= 500,
    )


def _seconds(value: str | None) -> float | None:
    if value is None or not value.strip().isdigit():
        return None
    return float(value)
