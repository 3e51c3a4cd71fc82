"""Devices that ResourceSlices list, by the nodes that reach them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.kube.claims import ResourceSlice
from api.kube.selectors import NodeSelector, node_term_matches
from cluster.resources import Key
from scheduler.claims.expression import EvaluationError, Quantity, Selectable, quantity, version

DeviceId = tuple[str, str, str]
"""Driver, pool and name."""

PLAIN_FIELDS = frozenset({"name", "attributes", "capacity", "taints"})
"""Fields of devices that are understood; one with others (shared counters, several allocations) is given to nobody."""
BARRING = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A device that may be given to a claim, whole."""

    id: DeviceId
    seen: Selectable
    node_name: str
    """The node that it is on; empty where several reach it."""
    node_selector: NodeSelector | None
    """Nodes that reach it where it is on none; None are all."""


class Inventory:
    """Devices of complete pools."""

    def __init__(self) -> None:
        self.version = 0
        """Grows with each change."""
        self._pools: dict[tuple[str, str], dict[Key, ResourceSlice]] = {}
        self._pool_of: dict[Key, tuple[str, str]] = {}
        self._local: dict[str, dict[tuple[str, str], list[Device]]] = {}
        self._shared: dict[tuple[str, str], list[Device]] = {}

    def put(self, key: Key, item: ResourceSlice) -> None:
        """Take a slice that appeared or changed."""
        pool = (item.spec.driver, item.spec.pool.name)
        if self._pool_of.get(key, pool) != pool:
            self.drop(key)
        self._pool_of[key] = pool
        self._pools.setdefault(pool, {})[key] = item
        self._rebuild(pool)

    def drop(self, key: Key) -> None:
        """Forget a slice."""
        pool = self._pool_of.pop(key, None)
        if pool is not None:
            self._pools[pool].pop(key, None)
            self._rebuild(pool)
            if not self._pools[pool]:
                del self._pools[pool]

    def may_serve(self, node: str) -> bool:
        """Return whether the node has devices of its own, or there are devices on no node."""
        return node in self._local or bool(self._shared)

    def on(self, node: str, labels: Mapping[str, str]) -> list[Device]:
        """Return the devices that a node reaches, its own first."""
        found = [device for devices in self._local.get(node, {}).values() for device in devices]
        for devices in self._shared.values():
            found += [device for device in devices if _reaches(device.node_selector, node, labels)]
        return found

    def _rebuild(self, pool: tuple[str, str]) -> None:
        self.version += 1
        self._shared.pop(pool, None)
        for node in [node for node, pools in self._local.items() if pools.pop(pool, None) is not None and not pools]:
            del self._local[node]
        slices = list(self._pools[pool].values())
        newest = max((item.spec.pool.generation for item in slices), default=0)
        current = [item for item in slices if item.spec.pool.generation == newest]
        if not current or len(current) != current[0].spec.pool.resource_slice_count:
            return
        for item in sorted(current, key=lambda item: item.metadata.name):
            devices = [device for document in item.spec.devices if (device := _device(item, document)) is not None]
            if item.spec.node_name:
                self._local.setdefault(item.spec.node_name, {}).setdefault(pool, []).extend(devices)
            elif item.spec.all_nodes or item.spec.node_selector is not None:
                self._shared.setdefault(pool, []).extend(devices)


def _device(item: ResourceSlice, document: Mapping[str, Any]) -> Device | None:
    """Return the device; None for one that cannot be given whole to one claim, or to none for its taints."""
    spec = item.spec
    if not document.keys() <= PLAIN_FIELDS or not isinstance(document.get("name"), str):
        return None
    if any(taint.get("effect") in BARRING for taint in document.get("taints") or ()):
        return None
    attributes: dict[str, dict[str, Any]] = {}
    capacity: dict[str, dict[str, Quantity]] = {}
    try:
        for name, value in (document.get("attributes") or {}).items():
            domain, plain = _qualified(name, spec.driver)
            attributes.setdefault(domain, {})[plain] = _attribute(value)
        for name, value in (document.get("capacity") or {}).items():
            domain, plain = _qualified(name, spec.driver)
            capacity.setdefault(domain, {})[plain] = quantity(str(value["value"]))
    except (EvaluationError, AttributeError, KeyError, TypeError, ValueError):
        return None
    seen = Selectable(spec.driver, attributes, capacity)
    return Device((spec.driver, spec.pool.name, document["name"]), seen, spec.node_name, spec.node_selector)


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


def _reaches(selector: NodeSelector | None, node: str, labels: Mapping[str, str]) -> bool:
    return selector is None or any(node_term_matches(term, labels, node) for term in selector.node_selector_terms)
