"""States of a pod's containers, as its kubelet reports them."""

from collections.abc import Iterator
from typing import Any

from api.kube.objects import Pod


def statuses(pod: Pod, *, init: bool) -> Iterator[dict[str, Any]]:
    """Yield the statuses of containers, and of init containers where asked for."""
    yield from pod.status.container_statuses
    if init:
        yield from pod.status.init_container_statuses


def restarts(pod: Pod, *, init: bool) -> int:
    """Return the restarts of a pod's containers."""
    counts = (each.get("restartCount") for each in statuses(pod, init=init))
    return sum(count for count in counts if isinstance(count, int))


def reasons(pod: Pod, *, init: bool) -> set[str]:
    """Return the pod's phase and reason, and the reasons for which containers wait or ended."""
    found = {pod.status.phase, pod.status.reason}
    for each in statuses(pod, init=init):
        for state in ("waiting", "terminated"):
            detail = (each.get("state") or {}).get(state) or {}
            found.add(str(detail.get("reason", "")))
    return found - {""}


def exit_codes(pod: Pod, *, init: bool) -> set[int]:
    """Return the exit codes of containers that ended."""
    found = ((each.get("state") or {}).get("terminated") or {} for each in statuses(pod, init=init))
    return {code for each in found if isinstance(code := each.get("exitCode"), int)}
