"""Status errors of the API server, with its own reasons and wording where clients read them."""

from typing import Any

import msgspec

Status = dict[str, Any]


class StatusError(Exception):
    """A request is refused with this code and reason; `http_status` where the answer's own status differs."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        causes: tuple[tuple[str, str], ...] = (),
        retry_after_seconds: int | None = None,
        http_status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after_seconds = retry_after_seconds
        self.http_status = http_status or status

    def document(self) -> Status:
        """The Status object of the answer's body."""
        details: dict[str, Any] = {}
        if self.causes:
            details["causes"] = [{"reason": reason, "message": text} for reason, text in self.causes]
        if self.retry_after_seconds:
            details["retryAfterSeconds"] = self.retry_after_seconds
        answer = _status("Failure", self.status) | {"reason": self.reason, "message": self.message}
        return answer | ({"details": details} if details else {})

    def body(self) -> bytes:
        """The Status object as JSON."""
        return msgspec.json.encode(self.document())


def success(status: int = 200) -> bytes:
    """The Status object of a success that has no object to show."""
    return msgspec.json.encode(_status("Success", status))


def not_found(plural: str, name: str) -> StatusError:
    """404 for an object."""
    return StatusError(404, "NotFound", f'{plural} "{name}" not found')


def already_exists(plural: str, name: str) -> StatusError:
    """409 for a create."""
    return StatusError(409, "AlreadyExists", f'{plural} "{name}" already exists')


def conflict(plural: str, name: str, why: str) -> StatusError:
    """409 for a write whose precondition does not hold."""
    return StatusError(409, "Conflict", f'Operation cannot be fulfilled on {plural} "{name}": {why}')


def modified(plural: str, name: str) -> StatusError:
    """409 for a write based on an old version."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(plural, name, why)


def bad_request(message: str) -> StatusError:
    """400."""
    return StatusError(400, "BadRequest", message)


def invalid(kind: str, name: str, field: str, why: str) -> StatusError:
    """422 for one field."""
    message = f'{kind} "{name}" is invalid: {field}: {why}'
    return StatusError(422, "Invalid", message, causes=(("FieldValueInvalid", why),))


def forbidden(plural: str, name: str, why: str) -> StatusError:
    """403 from admission."""
    return StatusError(403, "Forbidden", f'{plural} "{name}" is forbidden: {why}')


def expired(message: str) -> StatusError:
    """410 for a version or token that the server no longer has."""
    return StatusError(410, "Expired", message)


def _status(status: str, code: int) -> Status:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": status, "code": code}
