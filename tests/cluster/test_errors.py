"""Error types by HTTP status and reason."""

import pytest

from cluster import errors


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (400, "BadRequest", errors.Invalid),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (405, "MethodNotAllowed", errors.Invalid),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Expired),
        (410, "Gone", errors.Expired),
        (415, "UnsupportedMediaType", errors.Invalid),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.Unavailable),
        (503, "ServiceUnavailable", errors.Unavailable),
        (504, "Timeout", errors.Unavailable),
        (302, "", errors.ApiError),
    ],
)
def test_status_and_reason_choose_the_type(status: int, reason: str, expected: type[errors.ApiError]) -> None:
    assert errors.error_type(status, reason) is expected


def test_the_answer_is_kept() -> None:
    body = (
        b'{"kind":"Status","code":429,"reason":"TooManyRequests","message":"no","details":'
        b'{"causes":[{"reason":"DisruptionBudget","message":"needs 2"}],"retryAfterSeconds":7}}'
    )
    error = errors.from_response(429, body, {}, "POST /x")
    assert (error.status, error.reason, error.retry_after_seconds) == (429, "TooManyRequests", 7)
    assert error.causes == (("DisruptionBudget", "needs 2"),)
    assert "POST /x" in str(error)
    assert "no" in error.message
    assert not error.ambiguous


def test_the_header_outranks_the_details() -> None:
    body = b'{"details":{"retryAfterSeconds":7}}'
    assert errors.from_response(503, body, {"Retry-After": "3"}, "").retry_after_seconds == 3


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"<html>bad gateway</html>", id="html"),
        pytest.param(b'{"code":"text"}', id="code-is-text"),
        pytest.param(b"[1]", id="list"),
    ],
)
def test_a_page_that_is_no_status_is_still_an_error(body: bytes) -> None:
    error = errors.from_response(502, body, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, "GET /x")
    assert isinstance(error, errors.Unavailable)
    # A gateway's failure says nothing about what the server behind it did.
    assert error.ambiguous
    assert error.retry_after_seconds is None
