"""Binding of a pod to a node, and eviction within its disruption budget.

Both are safe to repeat: the pod's own state afterwards decides the outcome, whatever answer was lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from cluster import errors
from cluster.client import Client
from cluster.outcomes import BindOutcome, EvictionOutcome, EvictionResult
from cluster.resources import PODS, Document, Key
from cluster.settings import DEFAULT_DELETION, DeleteOptions
from cluster.transport import Request


class _PodMeta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    deletion_timestamp: str | None = None


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _PodMeta = _PodMeta()
    spec: _PodSpec = _PodSpec()


_PLACES = PODS.of(_Pod)
_REREADS = 3


@dataclass(frozen=True, slots=True)
class Binding:
    """A placement to write. `annotations` are merged into the pod's in the same write as the node."""

    pod: Key
    uid: str
    node: str
    annotations: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> Document:
        """The body of POST pods/NAME/binding."""
        metadata: Document = {"namespace": self.pod.namespace, "name": self.pod.name}
        if self.uid:
            metadata["uid"] = self.uid
        if self.annotations:
            metadata["annotations"] = dict(self.annotations)
        target = {"apiVersion": "v1", "kind": "Node", "name": self.node}
        return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


def bind(client: Client, binding: Binding) -> BindOutcome:
    """Bind a pod; the API server lets only one binding of a pod succeed.

    Repeated after lost answers: a refusal is then read against the pod itself, whose node may be ours.
    Raises `Unavailable` when the server stays out of reach (the pod may or may not be bound: read it), and
    `Conflict` when it refuses although the pod is free (scheduling gates).
    """
    try:
        client.send(binding_request(binding))
    except errors.NotFound:
        return BindOutcome.GONE
    except errors.Conflict:
        outcome = _after_refusal(client, binding)
        if outcome is None:
            raise
        return outcome
    return BindOutcome.BOUND


def binding_request(binding: Binding) -> Request:
    """Return the request that binds a pod."""
    return Request("POST", PODS.object_path(binding.pod, "binding"), body=msgspec.json.encode(binding.document()))


def _after_refusal(client: Client, binding: Binding) -> BindOutcome | None:
    # A pod that is refused as taken and reads as free was read from a server that lags behind.
    for attempt in range(_REREADS):
        outcome = bound_where(client, binding)
        if outcome is not None:
            return outcome
        client.pause(attempt)
    return bound_where(client, binding)


def bound_where(client: Client, binding: Binding) -> BindOutcome | None:
    """Return the outcome that the pod's state implies for a binding; None when it is free."""
    pod = client.find(_PLACES, binding.pod)
    if pod is None:
        return BindOutcome.GONE
    if binding.uid and pod.metadata.uid != binding.uid:
        return BindOutcome.REPLACED
    if pod.spec.node_name:
        return BindOutcome.BOUND if pod.spec.node_name == binding.node else BindOutcome.ELSEWHERE
    return BindOutcome.GONE if pod.metadata.deletion_timestamp else None


def evict(
    client: Client,
    pod: Key,
    options: DeleteOptions = DEFAULT_DELETION,
    *,
    dry_run: bool = False,
) -> EvictionResult:
    """Ask for a pod's eviction (policy/v1); a budget's refusal is a result, shed load is retried.

    Only the pod of `options.uid` is evicted; without one the pod that has the name at this moment, so that
    a repeated request never meets its successor. Raises `Unavailable` when the server stays out of reach,
    `Forbidden` when it may not be asked.
    """
    if not options.uid:
        current = client.find(_PLACES, pod)
        if current is None:
            return EvictionResult(EvictionOutcome.GONE, f"pod {pod} does not exist")
        options = replace(options, uid=current.metadata.uid)
    request = Request(
        "POST",
        PODS.object_path(pod, "eviction"),
        {"dryRun": "All"} if dry_run else {},
        msgspec.json.encode(_eviction(pod, options)),
    )
    try:
        _raise_failure(client.send(request, final=_is_answer), request)
    except errors.NotFound as error:
        return EvictionResult(EvictionOutcome.GONE, error.message)
    except errors.TooManyRequests as error:
        return EvictionResult(EvictionOutcome.BUDGET, _budget(error), error.retry_after_seconds)
    except errors.Conflict as error:
        return _after_conflict(client, pod, options, error)
    except errors.Unavailable as error:
        if _is_answer(error):
            return EvictionResult(EvictionOutcome.AMBIGUOUS_BUDGETS, error.message)
        raise
    return EvictionResult(EvictionOutcome.EVICTED)


class _Outcome(msgspec.Struct, frozen=True):
    status: str = ""


def _raise_failure(body: bytes, request: Request) -> None:
    # A pod under two budgets is refused with a Status of failure in an answer of success.
    if msgspec.json.decode(body, type=_Outcome).status == "Failure":
        raise errors.from_status(msgspec.json.decode(body, type=errors.Status), request.where)


def _is_answer(error: errors.ApiError) -> bool:
    if isinstance(error, errors.TooManyRequests):
        return any(kind == "DisruptionBudget" for kind, _ in error.causes)
    # The server has no reason code of its own for this one.
    return "more than one PodDisruptionBudget" in error.message


def _eviction(pod: Key, options: DeleteOptions) -> Document:
    delete_options = options.document()
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": pod.namespace, "name": pod.name},
        "deleteOptions": {**delete_options, "apiVersion": "policy/v1"},
    }


def _budget(error: errors.TooManyRequests) -> str:
    if not _is_answer(error):
        # The server shed load to the end of our patience; that is no answer about the budget.
        raise error
    return "; ".join(text for _, text in error.causes)


def _after_conflict(client: Client, pod: Key, options: DeleteOptions, error: errors.Conflict) -> EvictionResult:
    current = client.find(_PLACES, pod)
    if current is None or (options.uid and current.metadata.uid != options.uid):
        return EvictionResult(EvictionOutcome.GONE, error.message)
    raise error
