"""DefaultPreBind: everything the plugins decided about a pod, as one patch before it is bound.

The binder sends the same annotations with the binding, which is one write less; this plugin is for clusters
whose API server or webhooks do not take annotations from a binding, or where another program binds.
"""

from collections.abc import Sequence

from cluster.resources import PODS, Key, merge_patch
from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.podinfo import DECIDED_ANNOTATIONS
from scheduler.framework import Attempt, Plugin, Reason, Verb, Write


class DefaultPreBind(Plugin[tuple[()]]):
    """Writes the decided annotations once, for all plugins."""

    name = "DefaultPreBind"
    rank = 880
    enabled = False

    def pre_bind(self, attempt: Attempt, spec: tuple[()], row: Row) -> Reason | Sequence[Write]:
        """One patch that fails when the name has passed to another pod; none when nothing was decided."""
        info = attempt.pod
        if info.pod.metadata.deletion_timestamp:
            return Reason("the pod is being deleted", resolvable=False)
        claimed = {name: None for name in DECIDED_ANNOTATIONS if info.pod.metadata.annotations.get(name)}
        if info.stand_in or not (info.patch or claimed):
            return ()
        key = Key(info.namespace, info.pod.metadata.name)
        patch = merge_patch({"metadata": {"uid": info.uid, "annotations": {**claimed, **info.patch}}})
        return (Write(Verb.PATCH, PODS, key, patch),)
