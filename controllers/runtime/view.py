"""Views of the cluster: what the informers know at one moment, what changed since the last plan, and tables of it."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from cluster.resources import Key, Resource
from cluster.store import StoreDelta
from controllers.runtime.writes import Target, Verb, Write, kind_name

_log = logging.getLogger(__name__)

T = TypeVar("T")
V = TypeVar("V")

NEVER = float("-inf")
EVER = float("inf")


class Projection(ABC, Generic[V]):
    """A table that is kept up to date by differences; its value is immutable and shared by all controllers."""

    watches: ClassVar[tuple[Resource[Any], ...]] = ()
    now: float = EVER
    """The manager's time of the changes being taken in, seconds since the epoch; infinite where it does not matter."""

    @abstractmethod
    def apply(self, resource: Resource[Any], changes: Sequence[StoreDelta[Any]]) -> None:
        """Take in changes of a watched kind. Must not raise on any object that decodes."""

    @abstractmethod
    def value(self) -> V:
        """Return the present table; the same object as before when nothing changed."""


AnyProjection = Projection[Any]


class View:
    """One moment of the cluster. Nothing in it changes after it was made."""

    def __init__(
        self,
        objects: Mapping[str, Mapping[Key, Any]],
        changed: Mapping[str, frozenset[Key]],
        tables: Mapping[type[AnyProjection], Any],
        written_seconds: Mapping[Target, float],
        *,
        full: bool,
        heard_since_seconds: float = NEVER,
        unmade: Mapping[Target, str] | None = None,
    ) -> None:
        self.full = full
        """True when everything is to be planned, not only what changed."""
        self.heard_since_seconds = heard_since_seconds
        """Time since which the API server has been heard without a gap; minus infinity when that does not matter."""
        self._objects = objects
        self._changed = changed
        self._tables = tables
        self._written_seconds = written_seconds
        self._unmade = unmade or {}

    def objects(self, resource: Resource[T]) -> Mapping[Key, T]:
        """Return the objects of a watched kind. Raises KeyError for a kind that the controller does not watch."""
        return self._objects[kind_name(resource)]

    def due(self, *resources: Resource[Any]) -> list[Key]:
        """Return the keys of these kinds to be planned, sorted: all of them in a full plan, else those that changed.

        Keys of objects that are gone are among those that changed.
        """
        found: set[Key] = set()
        for resource in resources:
            name = kind_name(resource)
            found |= self._changed.get(name, frozenset())
            if self.full:
                found |= self._objects[name].keys()
        return sorted(found)

    def touched(self, resource: Resource[Any]) -> bool:
        """Return whether any object of the kind is due."""
        return self.full or bool(self._changed.get(kind_name(resource)))

    def of(self, projection: type[Projection[V]]) -> V:
        """Return a table that the controller names in `projections`."""
        table: V = self._tables[projection]
        return table

    def unmade(self, resource: Resource[Any]) -> Mapping[Key, str]:
        """Return what became of the controller's writes since its last plan that were not made, by object.

        `held` waits for the budget of writes or an earlier write, others are named as in `writer.Result`.
        """
        name = kind_name(resource)
        return {target.key: result for target, result in self._unmade.items() if target.kind == name}

    def written_seconds(self, resource: Resource[Any], key: Key) -> float | None:
        """Return when the controller last wrote the object in this process, seconds since the epoch; None if never."""
        return self._written_seconds.get(Target(kind_name(resource), key))


class ClusterCopy:
    """All that the informers delivered, and what each controller has not planned yet. No clock, no I/O."""

    def __init__(self, resources: Iterable[Resource[Any]], projections: Iterable[type[AnyProjection]]) -> None:
        self.resources: dict[str, Resource[Any]] = {}
        self.projections = {kind: kind() for kind in projections}
        for resource in [*resources, *(each for kind in self.projections for each in kind.watches)]:
            self.resources.setdefault(kind_name(resource), resource)
        self._objects: dict[str, dict[Key, Any]] = {name: {} for name in self.resources}
        self._frozen: dict[str, Mapping[Key, Any]] = {}
        self.changed: dict[str, dict[str, set[Key]]] = {}
        """Keys by kind, by controller."""
        self.failures = 0
        """Objects that a projection could not take in."""
        self.written: dict[str, dict[Target, float]] = {}
        """Time of the last write to a target, by controller."""
        self.unmade: dict[str, dict[Target, str]] = {}
        """Results of writes that were not made and that the controller has not seen, by controller."""

    def register(self, controller: str) -> None:
        """Keep changes for a controller from here on."""
        self.changed[controller] = {}
        self.written[controller] = {}
        self.unmade[controller] = {}

    def apply(self, resource: Resource[Any], changes: Sequence[StoreDelta[Any]], now: float = EVER) -> None:
        """Take in changes of a kind, at a time in seconds since the epoch."""
        name = kind_name(resource)
        known = self._objects[name]
        for change in changes:
            if change.new is None:
                known.pop(change.key, None)
                for written in self.written.values():
                    written.pop(Target(name, change.key), None)
            else:
                known[change.key] = change.new
        self._frozen.pop(name, None)
        for projection in self.projections.values():
            if any(kind_name(each) == name for each in projection.watches):
                projection.now = now
                self._project(projection, resource, changes)
        keys = {change.key for change in changes}
        for pending in self.changed.values():
            pending.setdefault(name, set()).update(keys)

    def _project(self, projection: AnyProjection, resource: Resource[Any], changes: Sequence[StoreDelta[Any]]) -> None:
        """Let a projection take in changes, one by one where all at once fail; one that it cannot take is counted."""
        try:
            projection.apply(resource, changes)
        except Exception as error:  # noqa: BLE001 - one object must not end the controllers of all others
            if len(changes) > 1:
                for change in changes:
                    self._project(projection, resource, [change])
                return
            if not self.failures:
                name, key = type(projection).__name__, changes[0].key
                _log.error("%s leaves out %s %s: %r", name, resource.kind, key, error, exc_info=error)
            self.failures += 1

    def mark(self, controller: str, target: Target, result: str) -> None:
        """Make an object due again for a controller, of whose write nothing came."""
        self.changed[controller].setdefault(target.kind, set()).add(target.key)
        self.unmade[controller][target] = result

    def wrote(self, controller: str, write: Write, now: float) -> None:
        """Note a write that was made. Nothing is kept of a deletion: it is the last write to the object, and its answer
        may come after the watch showed that the object is gone."""
        if write.verb is Verb.DELETE:
            self.written[controller].pop(write.target, None)
        else:
            self.written[controller][write.target] = now

    def get(self, target: Target) -> Any:
        """Return the object as last seen, or None."""
        return self._objects.get(target.kind, {}).get(target.key)

    def pending(self, controller: str, kinds: Iterable[Resource[Any]]) -> bool:
        """Return whether an object of these kinds waits to be planned."""
        changed = self.changed[controller]
        return any(changed.get(kind_name(each)) for each in kinds)

    def objects(self) -> Mapping[str, Mapping[Key, Any]]:
        """Return all objects by kind, as they are at this moment; nothing in it changes."""
        for name, objects in self._objects.items():
            if name not in self._frozen:
                self._frozen[name] = MappingProxyType(dict(objects))
        return MappingProxyType(dict(self._frozen))

    def forget_changes(self) -> None:
        """Forget what each controller has not planned; its next plan has to be a full one."""
        for name in self.changed:
            self.changed[name] = {}

    def view(self, controller: str, *, full: bool, heard_since_seconds: float = NEVER) -> View:
        """Return the view for a plan; what it calls changed is forgotten here."""
        changed = {name: frozenset(keys) for name, keys in self.changed[controller].items()}
        self.changed[controller] = {}
        unmade, self.unmade[controller] = self.unmade[controller], {}
        tables = {kind: projection.value() for kind, projection in self.projections.items()}
        return View(
            self.objects(),
            MappingProxyType(changed),
            MappingProxyType(tables),
            MappingProxyType(dict(self.written[controller])),
            full=full,
            heard_since_seconds=heard_since_seconds,
            unmade=MappingProxyType(unmade),
        )
