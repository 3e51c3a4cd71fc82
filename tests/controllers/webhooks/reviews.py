"""Reviews as an API server sends them, through the routes and back into the object that it would store."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from api.crds import ClusterColocationProfile
from cluster.twin.patches import json_patch
from controllers.webhooks.routes import reply
from controllers.webhooks.view import ClusterView, PriorityClass

Document = dict[str, Any]

PRIORITY_CLASSES = {
    name: msgspec.convert({"metadata": {"name": name}, "value": value}, PriorityClass)
    for name, value in (("koord-prod", 9000), ("koord-mid", 7000), ("koord-batch", 5000), ("koord-free", 3000))
}
EXEMPT = frozenset({"kube-system", "koord-system"})


@dataclass(frozen=True)
class Outcome:
    """An answered review: the object as stored, or why not."""

    allowed: bool
    message: str
    code: int
    object: Document | None
    patch: Sequence[Document]
    warnings: Sequence[str]


def profile(name: str = "p", marks: Mapping[str, str] | None = None, **spec: Any) -> ClusterColocationProfile:
    """Return a profile from the fields of its spec; `marks` are its own annotations."""
    metadata = {"name": name, "annotations": dict(marks or {})}
    return msgspec.convert({"metadata": metadata, "spec": spec}, ClusterColocationProfile)


def pod(
    labels: Mapping[str, str] | None = None,
    *containers: Document,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Document:
    """Return a pod with one container, or those given."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": dict(labels or {}), "annotations": dict(annotations or {})},
        "spec": {"containers": list(containers) or [{"name": "main", "image": "busybox"}], **spec},
    }


def container(name: str = "main", **resources: Mapping[str, str]) -> Document:
    """Return a container with requests and limits."""
    return {"name": name, "image": "busybox", "resources": {kind: dict(found) for kind, found in resources.items()}}


def review(
    path: str,
    view: ClusterView,
    *,
    obj: Document | None = None,
    old: Document | None = None,
    operation: str = "",
    resource: tuple[str, str] = ("", "pods"),
    namespace: str = "spark-job",
    user: str = "system:serviceaccount:spark-job:spark",
    name: str = "",
    sub_resource: str = "",
) -> Outcome:
    """Send a review through the routes; `operation` follows from the objects where it is not given."""
    operation = operation or ("UPDATE" if obj is not None and old is not None else "CREATE" if obj else "DELETE")
    group, plural = resource
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "operation": operation,
        "resource": {"group": group, "version": "v1", "resource": plural},
        "subResource": sub_resource,
        "namespace": namespace,
        "name": name or str(((obj or old or {}).get("metadata") or {}).get("name", "")),
        "userInfo": {"username": user, "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": old,
    }
    body = msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    return outcome(reply(path, body, lambda: view, EXEMPT).body, obj)


def outcome(body: bytes, obj: Document | None) -> Outcome:
    """Return a response as the API server understands it."""
    answer = msgspec.json.decode(body)
    assert answer["apiVersion"] == "admission.k8s.io/v1"
    assert answer["kind"] == "AdmissionReview"
    response = answer["response"]
    assert response["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
    status = response.get("status", {})
    patch: list[Document] = []
    if "patch" in response:
        assert response["patchType"] == "JSONPatch"
        patch = msgspec.json.decode(base64.b64decode(response["patch"]))
    stored = json_patch(obj, patch) if response["allowed"] and obj is not None else None
    return Outcome(
        response["allowed"],
        status.get("message", ""),
        status.get("code", 0),
        stored,
        patch,
        response.get("warnings", []),
    )
