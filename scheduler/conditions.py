"""What pending pods are told: the PodScheduled condition, written only when its words change."""

from typing import Any

from api.kube.objects import Pod
from cluster.resources import PODS, Key, strategic_patch
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Verb, Write

POD = PODS.of(Pod)


class Conditions:
    """Remembers the last words to each pending pod."""

    def __init__(self) -> None:
        self._written: dict[str, str] = {}

    def unschedulable(self, info: PodInfo, message: str, nominated: str) -> Write | None:
        """The status patch that says why a pod waits, and on which node for victims; None when it knows."""
        text = f"{nominated}|{message}"
        if self._written.get(info.uid) == text:
            return None
        self._written[info.uid] = text
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        status: dict[str, Any] = {"conditions": [condition]}
        if nominated or info.pod.status.nominated_node_name:
            status["nominatedNodeName"] = nominated or None
        key = Key(info.namespace, info.pod.metadata.name)
        return Write(Verb.PATCH_STATUS, POD, key, strategic_patch({"status": status}))

    def forget(self, uid: str) -> None:
        """The pod is placed or gone."""
        self._written.pop(uid, None)
