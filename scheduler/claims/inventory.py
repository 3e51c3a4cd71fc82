"""Devices that ResourceSlices list, by the nodes that reach them."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from api.kube.claims import ResourceSlice
from api.kube.selectors import NodeSelector, node_term_matches
from cluster.resources import Key
from scheduler.claims.capacity import Capacity, amount, capacity_of
from scheduler.claims.selectable import EvaluationError, Selectable, quantity, version

DeviceId = tuple[str, str, str]
"""Driver, pool and name."""
PoolId = tuple[str, str]
"""Driver and pool."""
CounterId = tuple[str, str]
"""Counter set and counter, within a pool."""

KNOWN_FIELDS = frozenset(
    {
        "name",
        "attributes",
        "capacity",
        "taints",
        "consumesCounters",
        "nodeName",
        "nodeSelector",
        "allNodes",
        "allowMultipleAllocations",
    }
)
"""Fields of devices that are understood; a device with others (conditions of binding) stays unallocated."""
PLACING_FIELDS = frozenset({"name", "nodeName", "nodeSelector", "allNodes"})
"""Fields of devices that say which one it is and who reaches it, not what it is."""
BARRING = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class DeviceTaint:
    """A taint that keeps requests without a toleration away."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Content:
    """What a device says of itself, beside its name and nodes."""

    seen: Selectable
    taints: tuple[DeviceTaint, ...]
    consumes: tuple[tuple[CounterId, int], ...]
    capacities: Mapping[str, Capacity]


Alike = tuple[Content | None, ...]
"""What devices say, one after the other."""


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A device that may be given to a claim."""

    id: DeviceId
    seen: Selectable
    node_name: str
    """The node that it is on; empty where several reach it."""
    node_selector: NodeSelector | None
    """Nodes that reach it where it is on none; None are all."""
    taints: tuple[DeviceTaint, ...] = ()
    consumes: tuple[tuple[CounterId, int], ...] = ()
    """Amounts of the pool's counters that it consumes while it is given to a claim."""
    capacities: Mapping[str, Capacity] = field(default_factory=dict)
    place: int = 0
    """Position in its pool."""
    content: Content | None = None
    """What it says of itself: one object for all devices that say the same."""

    @property
    def pool(self) -> PoolId:
        """The pool that it is of."""
        return self.id[:2]

    @property
    def shareable(self) -> bool:
        """Several claims may use it, each a part of its capacity."""
        return self.seen.shareable

    def reached_by(self, node: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node reaches it."""
        return self.node_name == node if self.node_name else _reaches(self.node_selector, node, labels)


@dataclass(slots=True, eq=False)
class _Pool:
    """A pool whose slices are all there and say one thing."""

    local: dict[str, list[Device]] = field(default_factory=dict)
    elsewhere: list[Device] = field(default_factory=list)
    """Devices on no node."""
    counters: dict[CounterId, int] = field(default_factory=dict)
    consumers: list[Device] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Slices:
    """Slices of a pool as they are listed."""

    by_key: dict[Key, ResourceSlice] = field(default_factory=dict)

    def newest(self) -> list[ResourceSlice]:
        """Slices of the newest generation, by name."""
        newest = max((item.spec.pool.generation for item in self.by_key.values()), default=0)
        found = [item for item in self.by_key.values() if item.spec.pool.generation == newest]
        return sorted(found, key=lambda item: item.metadata.name)


class Inventory:
    """Devices of complete pools."""

    def __init__(self) -> None:
        self.version = 0
        """Grows with each change."""
        self._slices: dict[PoolId, Slices] = {}
        self._pool_of: dict[Key, PoolId] = {}
        self._pools: dict[PoolId, _Pool] = {}
        self._unsettled: dict[PoolId, list[ResourceSlice]] = {}
        """Slices of pools that are incomplete or contradict themselves."""
        self._unsettled_on: Counter[str] = Counter()
        """Such slices by the node that they are for."""
        self._unsettled_wide: set[PoolId] = set()
        """Pools with such slices that are not for one node."""
        self._elsewhere: set[PoolId] = set()
        self._with_counters: set[PoolId] = set()
        self._local: dict[str, dict[PoolId, list[Device]]] = {}
        self._on: dict[str, list[Device]] = {}
        """Answers for nodes that reach no other devices than their own."""
        self._contents: WeakValueDictionary[bytes, Content] = WeakValueDictionary()
        self._alike: dict[str, Alike | None] = {}
        """What devices of the node's own say, in their order; None where counters say what is left of them."""

    def put(self, key: Key, item: ResourceSlice) -> None:
        """Take a slice that appeared or changed."""
        pool = (item.spec.driver, item.spec.pool.name)
        if self._pool_of.get(key, pool) != pool:
            self.drop(key)
        self._pool_of[key] = pool
        self._slices.setdefault(pool, Slices()).by_key[key] = item
        self._rebuild(pool)

    def drop(self, key: Key) -> None:
        """Forget a slice."""
        pool = self._pool_of.pop(key, None)
        if pool is not None:
            self._slices[pool].by_key.pop(key, None)
            self._rebuild(pool)
            if not self._slices[pool].by_key:
                del self._slices[pool]

    def may_serve(self, node: str) -> bool:
        """Return whether the node has devices of its own, or there are devices on no node."""
        return node in self._local or bool(self._elsewhere)

    @property
    def has_counters(self) -> bool:
        """Some pool has counters that its devices consume together."""
        return bool(self._with_counters)

    def nodes_of(self, device: DeviceId) -> Iterable[str] | None:
        """The nodes whose answers depend on whether the device is in use; None where it may be any."""
        pool = self._pools.get(device[:2])
        if pool is None:
            return ()
        return pool.local if not pool.elsewhere else None

    def nodes_of_slice(self, key: Key) -> Iterable[str] | None:
        """The nodes whose answers depend on a slice's pool; None where it may be any."""
        pool = self._pool_of.get(key)
        slices = self._slices[pool].by_key.values() if pool is not None else ()
        names = {item.spec.node_name for item in slices}
        return None if "" in names else names

    def on(self, node: str, labels: Mapping[str, str]) -> list[Device]:
        """Return the devices that a node reaches, by driver, pool, slice and place. Not to be changed."""
        found = self._on.get(node)
        if found is not None:
            return found
        own = self._local.get(node, {})
        if not self._elsewhere:
            found = self._on[node] = [device for pool in sorted(own) for device in own[pool]]
            return found
        found = []
        for pool in sorted(self._elsewhere | own.keys()):
            devices = [*own.get(pool, ())]
            devices += [each for each in self._pools[pool].elsewhere if _reaches(each.node_selector, node, labels)]
            found += sorted(devices, key=lambda device: device.place)
        return found

    def alike(self, node: str) -> Alike | None:
        """Return what the node's devices say: nodes with the same answer serve the same, as long as all is free.

        None where devices on no node, what counters of a pool leave, or a pool that is incomplete have a say too.
        """
        if self._elsewhere or self._unsettled_wide or node in self._unsettled_on:
            return None
        return self._alike.get(node, ())

    def pools_on(self, node: str) -> Iterable[PoolId]:
        """Return the pools of the node's own devices."""
        return self._local.get(node, ())

    def unsettled(self, node: str, labels: Mapping[str, str]) -> bool:
        """Return whether a pool that the node reaches is incomplete or contradicts itself: "all" is not known then."""
        if node in self._unsettled_on:
            return True
        return any(_touches(item, node, labels) for pool in self._unsettled_wide for item in self._unsettled[pool])

    def counters_left(
        self, devices: Iterable[Device], taken: Container[DeviceId]
    ) -> dict[PoolId, dict[CounterId, int]]:
        """Return what devices that are taken, on whatever node, leave of the counters of these devices' pools."""
        found: dict[PoolId, dict[CounterId, int]] = {}
        for pool in {device.pool for device in devices if device.consumes}:
            left = found[pool] = dict(self._pools[pool].counters)
            for device in self._pools[pool].consumers:
                if device.id in taken:
                    for counter, consumed in device.consumes:
                        left[counter] -= consumed
        return found

    def _rebuild(self, pool: PoolId) -> None:
        self.version += 1
        self._on.clear()
        self._settle(pool)
        self._elsewhere.discard(pool)
        self._with_counters.discard(pool)
        known = self._pools.pop(pool, None)
        for node in known.local if known is not None else ():
            self._local[node].pop(pool)
            if not self._local[node]:
                del self._local[node]
            self._compare(node)
        slices = self._slices[pool].newest()
        if not slices:
            return
        made = _pool(slices, self._contents) if len(slices) == slices[0].spec.pool.resource_slice_count else None
        if made is None:
            self._unsettled[pool] = slices
            names = [item.spec.node_name for item in slices]
            self._unsettled_on.update(name for name in names if name)
            if "" in names:
                self._unsettled_wide.add(pool)
            return
        self._pools[pool] = made
        if made.counters:
            self._with_counters.add(pool)
        for node, devices in made.local.items():
            self._local.setdefault(node, {})[pool] = devices
            self._compare(node)
        if made.elsewhere:
            self._elsewhere.add(pool)

    def _settle(self, pool: PoolId) -> None:
        self._unsettled_wide.discard(pool)
        for item in self._unsettled.pop(pool, ()):
            name = item.spec.node_name
            if self._unsettled_on[name] > 1:
                self._unsettled_on[name] -= 1
            else:
                self._unsettled_on.pop(name, None)

    def _compare(self, node: str) -> None:
        own = self._local.get(node)
        if own is None:
            self._alike.pop(node, None)
            return
        devices = [device for pool in sorted(own) for device in own[pool]]
        counted = any(device.consumes for device in devices)
        self._alike[node] = None if counted else tuple(device.content for device in devices)


Contents = MutableMapping[bytes, Content]
"""By what was said, encoded."""


def _pool(slices: Sequence[ResourceSlice], contents: Contents) -> _Pool | None:
    """Return the pool; None where names are doubled or counters are consumed that are not there."""
    made = _Pool()
    names: set[str] = set()
    sets: set[str] = set()
    for item in slices:
        for counter_set in item.spec.shared_counters:
            named = str(counter_set.get("name"))
            if named in sets:
                return None
            sets.add(named)
            try:
                made.counters |= {(named, name): total for name, total in _counters(counter_set)}
            except (AttributeError, KeyError, TypeError, ValueError):
                return None
    place = 0
    for item in slices:
        for document in item.spec.devices:
            name = document.get("name")
            if name in names:
                return None
            names.add(str(name))
            place += 1
            device = _device(item, document, place, contents)
            if device is None:
                continue
            consumed = {str(entry.get("counterSet")) for entry in document.get("consumesCounters") or ()}
            if not consumed <= sets or any(counter not in made.counters for counter, _ in device.consumes):
                return None
            if device.consumes:
                made.consumers.append(device)
            if device.node_name:
                made.local.setdefault(device.node_name, []).append(device)
            else:
                made.elsewhere.append(device)
    return made


def _counters(document: Mapping[str, Any]) -> list[tuple[str, int]]:
    return [(name, amount(counter["value"])) for name, counter in (document.get("counters") or {}).items()]


def _device(item: ResourceSlice, document: Mapping[str, Any], place: int, contents: Contents) -> Device | None:
    """Return the device; None for one that says what is not understood, or that nodes are not told to reach."""
    spec = item.spec
    if not document.keys() <= KNOWN_FIELDS or not isinstance(document.get("name"), str):
        return None
    try:
        where = _where(item, document)
        said = _content(spec.driver, document, contents)
    except (EvaluationError, AttributeError, KeyError, OverflowError, TypeError, ValueError, msgspec.ValidationError):
        return None
    if where is None:
        return None
    name = (spec.driver, spec.pool.name, document["name"])
    return Device(name, said.seen, *where, said.taints, said.consumes, said.capacities, place, said)


def _content(driver: str, document: Mapping[str, Any], contents: Contents) -> Content:
    """Return what the device says; most devices of a cluster say what others say, and are read once."""
    stated = {name: value for name, value in document.items() if name not in PLACING_FIELDS}
    encoded = msgspec.msgpack.encode((driver, stated))
    known = contents.get(encoded)
    if known is not None:
        return known
    taints = tuple(
        DeviceTaint(str(taint.get("key", "")), str(taint.get("value", "")), str(taint["effect"]))
        for taint in document.get("taints") or ()
        if taint.get("effect") in BARRING
    )
    consumes = tuple(
        ((str(entry["counterSet"]), name), consumed)
        for entry in document.get("consumesCounters") or ()
        for name, consumed in _counters(entry)
    )
    capacities = {name: capacity_of(value) for name, value in (document.get("capacity") or {}).items()}
    made = contents[encoded] = Content(_selectable(driver, document), taints, consumes, capacities)
    return made


def _where(item: ResourceSlice, document: Mapping[str, Any]) -> tuple[str, NodeSelector | None] | None:
    """The device's node, or the nodes that reach it; None where the slice says neither."""
    spec = item.spec
    if spec.per_device_node_selection:
        selector = document.get("nodeSelector")
        if document.get("nodeName"):
            return str(document["nodeName"]), None
        if selector:
            return "", msgspec.convert(selector, NodeSelector)
        return ("", None) if document.get("allNodes") else None
    if spec.node_name or spec.node_selector is not None or spec.all_nodes:
        return spec.node_name, spec.node_selector
    return None


def _selectable(driver: str, document: Mapping[str, Any]) -> Selectable:
    attributes: dict[str, dict[str, Any]] = {}
    capacity: dict[str, dict[str, Any]] = {}
    for name, value in (document.get("attributes") or {}).items():
        domain, plain = _qualified(name, driver)
        attributes.setdefault(domain, {})[plain] = _attribute(value)
    for name, value in (document.get("capacity") or {}).items():
        domain, plain = _qualified(name, driver)
        capacity.setdefault(domain, {})[plain] = quantity(str(value["value"]))
    return Selectable(driver, attributes, capacity, bool(document.get("allowMultipleAllocations")))


def _qualified(name: str, driver: str) -> tuple[str, str]:
    """Domain and name of an attribute; without a domain it is its driver's."""
    domain, slash, plain = name.partition("/")
    return (domain, plain) if slash else (driver, name)


def _attribute(value: Mapping[str, Any]) -> Any:
    ((kind, content),) = value.items()
    if kind == "version":
        return version(content)
    if kind not in ("int", "bool", "string"):
        raise ValueError(kind)
    return content


def _touches(item: ResourceSlice, node: str, labels: Mapping[str, str]) -> bool:
    spec = item.spec
    if spec.node_name:
        return spec.node_name == node
    if spec.node_selector is not None:
        return _reaches(spec.node_selector, node, labels)
    return spec.all_nodes or spec.per_device_node_selection


def _reaches(selector: NodeSelector | None, node: str, labels: Mapping[str, str]) -> bool:
    return selector is None or any(node_term_matches(term, labels, node) for term in selector.node_selector_terms)
