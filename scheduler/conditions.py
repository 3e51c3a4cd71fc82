"""The PodScheduled condition of pending pods, written only when its message changes."""

from typing import Any

from api.kube.objects import Pod
from cluster.resources import PODS, Key, strategic_patch
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Verb, Write

POD = PODS.of(Pod)


class Conditions:
    """Conditions last written, by pod."""

    def __init__(self) -> None:
        self._written: dict[str, str] = {}

    def unschedulable(self, info: PodInfo, message: str, nominated: str) -> Write | None:
        """Return the status patch with the reason and the nominated node; None when it was written before."""
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
        """Forget a pod that is placed or gone."""
        self._written.pop(uid, None)
