"""DefaultBinder: one write binds the pod with the annotations decided at Reserve, so a bound pod never lacks them."""

from collections.abc import Sequence

from cluster.pods import Binding
from cluster.resources import PODS, Key
from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.podinfo import DECIDED_ANNOTATIONS
from scheduler.framework import Attempt, Plugin, Verb, Write


class DefaultBinder(Plugin[tuple[()]]):
    """Writes the pod's Binding, with the annotations that the other plugins chose."""

    name = "DefaultBinder"
    rank = 900

    def bind(self, attempt: Attempt, spec: tuple[()], row: Row) -> Sequence[Write]:
        """One write: node and annotations together."""
        info = attempt.pod
        key = Key(info.namespace, info.pod.metadata.name)
        # A binding merges annotations: what the author claims to have been given is emptied in the same write.
        claimed = {name: "" for name in DECIDED_ANNOTATIONS if info.pod.metadata.annotations.get(name)}
        binding = Binding(key, info.uid, attempt.snapshot.names[row], {**claimed, **info.patch})
        return (Write(Verb.BIND, PODS, key, binding),)
