"""Effective requests and limits of a pod: what the scheduler counts, for everything that counts pods.

As in Kubernetes' `PodRequests`: containers add up; an init container runs beside the sidecars (init containers that
restart always) before it; the larger of the two phases counts; pod-level amounts take the place of the sum; overhead
comes on top. A pod on a node that is resized in place counts with the largest of what it asks for, what the node
allocated and what is in effect, until the resize is carried out; one that the node cannot carry out counts with the
last two alone.

Pods are any structs with the fields below, so that programs with lean structs of their own count alike.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from api.kube.meta import Condition, Quantity
from api.kube.resources import QuantityError, Resources, add, maximum, parse_resources

Quantities: TypeAlias = Mapping[str, Quantity]
Reader: TypeAlias = Callable[[Quantities], Resources]
"""Amounts of a list; raises QuantityError for what it cannot read, or leaves it out."""


class RequestsAndLimits(Protocol):
    """Requests and limits of a container or a pod."""

    @property
    def requests(self) -> Quantities:
        """Amounts to hold."""

    @property
    def limits(self) -> Quantities:
        """Amounts not to exceed."""


class AnyContainer(Protocol):
    """A container or init container."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def resources(self) -> RequestsAndLimits:
        """What it asks for."""

    @property
    def restart_policy(self) -> str | None:
        """`Always` on an init container makes it a sidecar."""


class AnyContainerStatus(Protocol):
    """What the node gives to a container."""

    @property
    def name(self) -> str:
        """The container's name."""

    @property
    def allocated_resources(self) -> Quantities:
        """Requests that the node allocated."""

    @property
    def resources(self) -> RequestsAndLimits | None:
        """Requests and limits in effect."""


class AnyPodSpec(Protocol):
    """The requests of a pod, and whether it is on a node."""

    @property
    def containers(self) -> Sequence[AnyContainer]:
        """Containers."""

    @property
    def init_containers(self) -> Sequence[AnyContainer]:
        """Init containers and sidecars."""

    @property
    def resources(self) -> RequestsAndLimits | None:
        """Amounts of the pod as a whole."""

    @property
    def overhead(self) -> Quantities:
        """Amounts of its sandbox."""

    @property
    def node_name(self) -> str:
        """Its node."""


class AnyPodStatus(Protocol):
    """What the node gives to a pod."""

    @property
    def conditions(self) -> Sequence[Condition]:
        """`PodResizePending` tells of a resize that cannot be carried out."""

    @property
    def container_statuses(self) -> Sequence[AnyContainerStatus]:
        """Of containers."""

    @property
    def init_container_statuses(self) -> Sequence[AnyContainerStatus]:
        """Of init containers and sidecars."""

    @property
    def allocated_resources(self) -> Quantities:
        """Requests of the pod as a whole that the node allocated."""

    @property
    def resources(self) -> RequestsAndLimits | None:
        """Requests and limits of the pod as a whole that are in effect."""


class AnyPod(Protocol):
    """A pod as far as its requests go."""

    @property
    def spec(self) -> AnyPodSpec:
        """What it asks for."""

    @property
    def status(self) -> AnyPodStatus:
        """What its node gives."""


WHOLE_POD = "/"
"""Name of the pod as a whole in `held_amounts`; no container has it."""


def container_requests(container: AnyContainer, read: Reader = parse_resources) -> Resources:
    """Return a container's requests; a limit without a request counts as one. Raises QuantityError."""
    return _requests(container.resources, read)


def effective_requests(
    pod: AnyPod, read: Reader = parse_resources, counted: Callable[[Resources], Resources] = dict
) -> Resources:
    """Return the resources that a pod holds, or would hold, on a node.

    `counted` says what a container with given amounts counts with. Raises QuantityError.
    """
    held = held_amounts(pod, read)

    def amounts(container: AnyContainer) -> Resources:
        found = held.get(container.name)
        return counted(container_requests(container, read) if found is None else found)

    needed = _phases(pod.spec, amounts)
    if WHOLE_POD in held:
        needed |= held[WHOLE_POD]
    elif pod.spec.resources is not None:
        needed |= _requests(pod.spec.resources, read)
    for name, amount in (read(pod.spec.overhead) if pod.spec.overhead else {}).items():
        if name in needed or amount:
            needed[name] = needed.get(name, 0) + amount
    return needed


def effective_limits(pod: AnyPod, read: Reader = parse_resources) -> Resources:
    """Return the limits that bind a pod as a whole, summed like its requests; a resource without one is missing.

    Raises QuantityError.
    """
    limits = _phases(pod.spec, lambda container: read(container.resources.limits))
    if pod.spec.resources is not None:
        limits |= read(pod.spec.resources.limits)
    return limits


def held_amounts(pod: AnyPod, read: Reader = parse_resources) -> dict[str, Resources]:
    """Return what containers of a pod on a node count with where that is not what they ask for, by name.

    `WHOLE_POD` names pod-level amounts. Empty for most pods. Unreadable amounts of the status count as absent.
    """
    if not pod.spec.node_name:
        return {}
    status = pod.status
    infeasible = any(
        each.type == "PodResizePending" and each.status == "True" and each.reason == "Infeasible"
        for each in status.conditions
    )
    held: dict[str, Resources] = {}
    asked: dict[str, RequestsAndLimits] = {}
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        asked[container.name] = container.resources
    reported = [
        (each.name, each.allocated_resources, each.resources)
        for each in (*status.container_statuses, *status.init_container_statuses)
        if each.name
    ]
    if pod.spec.resources is not None:
        asked[WHOLE_POD] = pod.spec.resources
        reported.append((WHOLE_POD, status.allocated_resources, status.resources))
    for name, allocated, actual in reported:
        wanted = asked.get(name)
        in_effect = actual.requests if actual is not None else {}
        if wanted is None or not (allocated or in_effect):
            continue
        if all(amounts in ({}, wanted.requests) for amounts in (allocated, in_effect)):
            continue
        try:
            given = maximum(read(allocated), read(in_effect))
        except (QuantityError, AttributeError):
            continue
        want = _requests(wanted, read)
        found = {**want, **given} if infeasible else maximum(want, given)
        if found != want:
            held[name] = found
    return held


def _requests(resources: RequestsAndLimits, read: Reader) -> Resources:
    return read({**resources.limits, **resources.requests}) if resources.limits else read(resources.requests)


def _phases(spec: AnyPodSpec, amounts: Callable[[AnyContainer], Resources]) -> Resources:
    """The larger of what all containers hold together and what is held while init containers run one by one."""
    running: Resources = {}
    for container in spec.containers:
        running = add(running, amounts(container))
    peak: Resources = {}
    sidecars: Resources = {}
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            sidecars = add(sidecars, amounts(container))
            peak = maximum(peak, sidecars)
        else:
            peak = maximum(peak, add(sidecars, amounts(container)))
    return maximum(add(running, sidecars), peak)
