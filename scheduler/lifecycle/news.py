"""What pods and objects do is news for pods that wait: events of the queue."""

from collections.abc import Callable, Iterable

from api.kube.objects import Pod
from cluster.resources import Key
from scheduler.cycle import AnyPlugin
from scheduler.framework import Action, ObjectEvent
from scheduler.lifecycle.conditions import POD
from scheduler.outcome import Placed
from scheduler.podqueue import PodQueue
from scheduler.reservation.operating_pod import operates, serves


class News:
    """Teller of events to the queue. `relatives` are plugins with `kin`."""

    def __init__(self, queue: PodQueue, relatives: Iterable[AnyPlugin], clock: Callable[[], float]) -> None:
        self._queue = queue
        self._relatives = tuple(relatives)
        self._clock = clock

    def event(self, event: ObjectEvent) -> None:
        """Something changed that pods may wait for."""
        if len(self._queue):
            self._queue.on_event(event, self._clock())

    def pod(self, action: Action, pod: Pod) -> None:
        """A pod took room, or gave it back."""
        if len(self._queue):
            gone = action is Action.DELETE
            self.event(ObjectEvent(POD, action, _key(pod), pod if gone else None, None if gone else pod))

    def placed_changed(self, before: Pod, after: Pod) -> None:
        """A placed pod changed; told where it may matter to others."""
        if len(self._queue) and _matters(before, after):
            self.event(ObjectEvent(POD, Action.UPDATE, _key(after), before, after))

    def released(self, placed: Placed) -> None:
        """A pod gave its share back unused: news for pods that were tried while it held it, its own kin excepted."""
        if not len(self._queue):
            return
        info = placed.info
        kin = {info.uid}.union(*(plugin.kin(info) for plugin in self._relatives))
        event = ObjectEvent(POD, Action.DELETE, _key(info.pod), info.pod, None)
        self._queue.on_release(event, self._clock(), since=placed.started, kin=kin)


def _key(pod: Pod) -> Key:
    return Key(pod.metadata.namespace, pod.metadata.name)


def _matters(before: Pod, after: Pod) -> bool:
    """Return whether a placed pod changed in what may place others.

    Labels and requests do, that it is leaving, and that it serves as a reservation.
    """
    return (
        before.metadata.labels != after.metadata.labels
        or before.spec.containers != after.spec.containers
        or before.spec.resources != after.spec.resources
        or before.status.container_statuses != after.status.container_statuses
        or before.status.allocated_resources != after.status.allocated_resources
        or before.status.resources != after.status.resources
        or bool(before.metadata.deletion_timestamp) != bool(after.metadata.deletion_timestamp)
        or (operates(after) and serves(before) is not serves(after))
    )
