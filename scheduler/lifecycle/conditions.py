"""The PodScheduled condition and the nominated node of pending pods, written only when they change."""

from collections.abc import Callable
from typing import Any

from api.kube.objects import Pod
from api.kube.times import rfc3339
from cluster.resources import PODS, Key, strategic_patch
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Verb, Write

POD = PODS.of(Pod)


def unschedulable(pod: Pod, message: str, now: float) -> dict[str, Any]:
    """Return the condition that tells why a pod is pending; its time is that of the first of them."""
    condition: dict[str, Any] = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
    }
    if pod.metadata.generation:
        condition["observedGeneration"] = pod.metadata.generation
    known = any(each.type == "PodScheduled" and each.status == "False" for each in pod.status.conditions)
    if not known:
        condition["lastTransitionTime"] = rfc3339(now)
    return condition


class Conditions:
    """Conditions last written, by pod."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock
        """Seconds since the epoch."""
        self._written: dict[str, str] = {}
        self._expected: dict[str, str] = {}
        """Node that was written to a pod that holds its share there already."""

    def expected(self, pod: Pod, node: str) -> Write | None:
        """Return the status patch with the node that a held pod will be bound to; None when it was written before.

        Without it the pod looks like one that found no node, and an autoscaler makes another for it.
        """
        if self._expected.get(pod.metadata.uid, pod.status.nominated_node_name) == node:
            return None
        self._expected[pod.metadata.uid] = node
        self._written.pop(pod.metadata.uid, None)
        key = Key(pod.metadata.namespace, pod.metadata.name)
        return Write(Verb.PATCH_STATUS, POD, key, strategic_patch({"status": {"nominatedNodeName": node}}))

    def unschedulable(self, info: PodInfo, message: str, nominated: str) -> Write | None:
        """Return the status patch with the reason and the nominated node; None when it was written before."""
        return self.of_pod(info.pod, message, nominated)

    def of_pod(self, pod: Pod, message: str, nominated: str = "") -> Write | None:
        """The same for a pod that is not in the queue."""
        text = f"{nominated}|{message}"
        if self._written.get(pod.metadata.uid) == text:
            return None
        self._written[pod.metadata.uid] = text
        status: dict[str, Any] = {"conditions": [unschedulable(pod, message, self._clock())]}
        if nominated or pod.status.nominated_node_name or self._expected.pop(pod.metadata.uid, ""):
            status["nominatedNodeName"] = nominated or None
        key = Key(pod.metadata.namespace, pod.metadata.name)
        return Write(Verb.PATCH_STATUS, POD, key, strategic_patch({"status": status}))

    def forget(self, uid: str) -> None:
        """Forget a pod that is placed or gone."""
        self._written.pop(uid, None)
        self._expected.pop(uid, None)

    def clear(self) -> None:
        """Forget all: another process may have written since."""
        self._written.clear()
        self._expected.clear()
