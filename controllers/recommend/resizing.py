"""In-place resize of a pod's containers to what is recommended. Pure.

A request changes when it lies outside the bounds in which the history leaves it, and then to the target. Kubernetes
keeps a pod's QoS class: a guaranteed pod's limits go with its requests, another pod's requests stay below its limits,
and a pod gets no request of a resource that it did not ask for. Memory is never taken from a running container.
"""

from collections.abc import Iterator
from typing import Any

from api.kube.resources import CPU, MEMORY, QuantityError, format_resources, parse_quantity
from api.protocol import LABEL_QOS_CLASS
from controllers.kinds import Pod, PodContainer
from controllers.recommend.advice import Advice, ContainerAdvice
from controllers.recommend.report import Amounts

UNDER_WAY = ("PodResizePending", "PodResizeInProgress")
INFEASIBLE = "Infeasible"
"""Reason of a pending resize that the node will not try again: it can never give that much."""
MIRROR = "kubernetes.io/config.mirror"
OTHER_CLASSES = ("LSE", "LSR", "BE", "SYSTEM")
"""Classes with CPUs of their own, or with resources of batch pods: not resized."""
_BELOW = {CPU: 1, MEMORY: 1 << 20}
"""What a request stays below a limit, so that the pod does not become guaranteed."""
_SCALE = {CPU: 1000, MEMORY: 1}


def why_not(pod: Pod) -> str:
    """Return why a pod is not resized whatever is recommended; empty where it may be."""
    if pod.metadata.deletion_timestamp or pod.status.phase != "Running":
        return "it does not run"
    if MIRROR in pod.metadata.annotations:
        return "it is a static pod"
    if pod.metadata.labels.get(LABEL_QOS_CLASS) in OTHER_CLASSES:
        return f"its class is {pod.metadata.labels[LABEL_QOS_CLASS]}"
    return "a resize is under way" if is_under_way(pod) else ""


def is_under_way(pod: Pod) -> bool:
    """Return whether a resize of the pod waits for its node or is being carried out; not one that its node refused."""
    return any(
        each.type in UNDER_WAY and each.status == "True" and each.reason != INFEASIBLE for each in pod.status.conditions
    )


def resized(pod: Pod, advice: Advice) -> list[dict[str, Any]]:
    """Return the containers to patch, with the requests and limits that change; empty where all fit."""
    guaranteed = pod.status.qos_class == "Guaranteed"
    by_name = {each.name: each for each in advice.containers}
    found = []
    for container in pod.spec.containers:
        own = by_name.get(container.name)
        resources = _resources(container, own, guaranteed=guaranteed) if own is not None else {}
        if resources:
            found.append({"name": container.name, "resources": resources})
    return found


def _resources(container: PodContainer, own: ContainerAdvice, *, guaranteed: bool) -> dict[str, dict[str, str]]:
    requests, limits = dict(_changes(container, own, guaranteed=guaranteed)), {}
    if guaranteed:
        limits = dict(requests)
    elif own.limit_millicores is not None:
        limit = _amount(container.resources.limits, CPU)
        if limit is not None and own.limit_millicores > limit:
            limits[CPU] = own.limit_millicores
    made = {"requests": format_resources(requests), "limits": format_resources(limits)}
    return {name: amounts for name, amounts in made.items() if amounts}


def _changes(container: PodContainer, own: ContainerAdvice, *, guaranteed: bool) -> Iterator[tuple[str, int]]:
    amounts: dict[str, Amounts | None] = {CPU: own.cpu_millicores, MEMORY: own.memory_bytes}
    for name, bounds in amounts.items():
        present, limit = _amount(container.resources.requests, name), _amount(container.resources.limits, name)
        if bounds is None or not present:
            continue
        if bounds.lower <= present and (name == MEMORY or bounds.upper is None or present <= bounds.upper):
            continue
        target = bounds.target
        if limit is not None and not guaranteed:
            target = min(target, limit - _BELOW[name])
        if target > 0 and target != present and not (name == MEMORY and target < present):
            yield name, target


def _amount(resources: dict[str, Any], name: str) -> int | None:
    try:
        return parse_quantity(resources[name], _SCALE[name]) if name in resources else None
    except QuantityError:
        return None
