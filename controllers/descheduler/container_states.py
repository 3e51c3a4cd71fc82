"""States of a pod's containers, as its kubelet reports them."""

from api.kube.objects import ContainerStatus, Pod


def statuses(pod: Pod, *, init: bool) -> list[ContainerStatus]:
    """Return the statuses of containers, and of init containers where asked for."""
    return [*pod.status.container_statuses, *(pod.status.init_container_statuses if init else ())]


def restarts(pod: Pod, *, init: bool) -> int:
    """Return the restarts of a pod's containers."""
    return sum(each.restart_count for each in statuses(pod, init=init))


def reasons(pod: Pod, *, init: bool) -> set[str]:
    """Return the pod's phase and reason, and the reasons for which containers wait or ended."""
    ends = [end for each in statuses(pod, init=init) for end in (each.state.waiting, each.state.terminated) if end]
    return {pod.status.phase, pod.status.reason, *(end.reason for end in ends)} - {""}


def exit_codes(pod: Pod, *, init: bool) -> set[int]:
    """Return the exit codes of containers that ended."""
    ends = [each.state.terminated for each in statuses(pod, init=init)]
    return {end.exit_code for end in ends if end is not None and end.exit_code is not None}
