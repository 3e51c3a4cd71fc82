"""Pods as the kubelet and the API server write them, in part; one malformed pod hides no other. Pure."""

from dataclasses import dataclass
from typing import Any

import msgspec

from api.kube.meta import ObjectMeta, Quantity, Wire
from api.kube.objects import Container, ResourceRequirements
from koordlet.kubelet.configuration import without_nulls


class Terminated(Wire, frozen=True):
    """End of a container's instance."""

    container_id: str = msgspec.field(default="", name="containerID")


class ContainerState(Wire, frozen=True):
    """State of a container; one of the fields is set."""

    running: dict[str, Any] | None = None
    terminated: Terminated | None = None


class ContainerStatus(Wire, frozen=True):
    """Status of a container; ids are `runtime://id`."""

    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class NodePodSpec(Wire, frozen=True):
    """Desired state of a pod."""

    containers: list[Container] = msgspec.field(default_factory=list)
    init_containers: list[Container] = msgspec.field(default_factory=list)
    ephemeral_containers: list[Container] = msgspec.field(default_factory=list)
    resources: ResourceRequirements | None = None
    overhead: dict[str, Quantity] = msgspec.field(default_factory=dict)
    priority: int | None = None


class NodePodStatus(Wire, frozen=True):
    """Observed state of a pod."""

    phase: str = ""
    qos_class: str = ""
    container_statuses: list[ContainerStatus] = msgspec.field(default_factory=list)
    init_container_statuses: list[ContainerStatus] = msgspec.field(default_factory=list)
    ephemeral_container_statuses: list[ContainerStatus] = msgspec.field(default_factory=list)


class NodePod(Wire, frozen=True):
    """A pod of this node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodePodSpec = NodePodSpec()
    status: NodePodStatus = NodePodStatus()


class _Envelope(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta = ObjectMeta()


class _List(msgspec.Struct, frozen=True, gc=False):
    items: list[msgspec.Raw] | None = None


_LISTS = msgspec.json.Decoder(_List)
_PODS = msgspec.json.Decoder(NodePod)
_ENVELOPES = msgspec.json.Decoder(_Envelope)


class NotAPodList(ValueError):
    """An answer that is no list of pods."""


@dataclass(frozen=True, slots=True)
class PodList:
    """Pods of one answer; `problems` has a sentence for each that could not be read."""

    pods: tuple[NodePod, ...]
    problems: tuple[str, ...] = ()


def pods_of_list(body: bytes) -> PodList:
    """Return the pods of a PodList. Raises NotAPodList."""
    try:
        items = _LISTS.decode(body).items or []
    except msgspec.DecodeError as error:
        raise NotAPodList(f"no list of pods: {error}") from error
    pods, problems = [], []
    for raw in items:
        try:
            pods.append(_pod(raw))
        except msgspec.DecodeError as error:
            problems.append(f"pod {_key(raw)} is not readable: {error}")
    return PodList(tuple(pods), tuple(problems))


def _pod(raw: msgspec.Raw) -> NodePod:
    try:
        return _PODS.decode(raw)
    except msgspec.ValidationError:
        return msgspec.convert(without_nulls(msgspec.json.decode(raw)), NodePod)


def _key(raw: msgspec.Raw) -> str:
    try:
        return repr(_ENVELOPES.decode(raw).metadata.key)
    except msgspec.DecodeError:
        return "without a name"
