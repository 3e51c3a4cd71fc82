"""AdmissionReview (admission.k8s.io/v1) on the wire, and the answers of rules."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from api.kube.meta import Wire
from controllers.webhooks.json_patch import Operation

Document = dict[str, Any]

API_VERSION = "admission.k8s.io/v1"
LONGEST_MESSAGE = 4096
"""Characters of a refusal; the API server passes it on to the client that submitted the object."""
LONGEST_WARNING = 256
MOST_WARNINGS = 8


class UserInfo(Wire, frozen=True):
    """The submitter, as the API server authenticated it."""

    username: str = ""
    uid: str = ""
    groups: list[str] = msgspec.field(default_factory=list)
    extra: dict[str, list[str]] = msgspec.field(default_factory=dict)


class GroupResource(Wire, frozen=True):
    """Resource that a request writes."""

    group: str = ""
    version: str = ""
    resource: str = ""


class Request(Wire, frozen=True):
    """One write that the API server asks about. `object` is absent for DELETE, `old_object` for CREATE."""

    uid: str
    operation: str
    resource: GroupResource = GroupResource()
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: UserInfo = UserInfo()
    object: Document | None = None
    old_object: Document | None = None
    dry_run: bool = False


class Review(Wire, frozen=True):
    """A review as it arrives."""

    request: Request
    api_version: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a rule: a refusal, or admission with the object as it is to be stored.

    `object` None leaves the object alone. `code` is the HTTP status of a refusal.
    """

    refusal: str = ""
    code: int = 403
    object: Document | None = None
    warnings: tuple[str, ...] = field(default=())

    @property
    def allowed(self) -> bool:
        """True without a refusal."""
        return not self.refusal


ADMITTED = Answer()


class RefusedError(Exception):
    """A refusal out of the depth of a rule; `code` is its HTTP status."""

    def __init__(self, message: str, code: int = 403) -> None:
        super().__init__(message)
        self.code = code


_DECODER = msgspec.json.Decoder(Review)


def decoded(body: bytes) -> Request:
    """Return the request of a review. Raises msgspec.DecodeError (or its ValidationError) and RecursionError."""
    review = _DECODER.decode(body)
    if review.api_version != API_VERSION or review.kind != "AdmissionReview":
        raise msgspec.ValidationError(f"not an AdmissionReview of {API_VERSION}")
    return review.request


def encoded(uid: str, answer: Answer, patch: Sequence[Operation] = ()) -> bytes:
    """Return the review's answer as JSON."""
    response: Document = {"uid": uid, "allowed": answer.allowed}
    if not answer.allowed:
        status = {"message": answer.refusal[:LONGEST_MESSAGE], "code": answer.code, "reason": _REASONS[answer.code]}
        response["status"] = {"status": "Failure"} | status
    elif patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(list(patch))).decode()
    if answer.warnings:
        response["warnings"] = [_one_line(warning) for warning in answer.warnings[:MOST_WARNINGS]]
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


_REASONS = {400: "BadRequest", 403: "Forbidden", 500: "InternalError", 503: "ServiceUnavailable"}


def _one_line(text: str) -> str:
    # Warnings travel in an HTTP header.
    return "".join(letter if letter.isprintable() else " " for letter in text)[:LONGEST_WARNING]
