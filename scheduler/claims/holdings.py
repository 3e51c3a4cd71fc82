"""Devices in use: those that claims show, and those that were chosen here and are not shown yet."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from api.kube.claims import Allocation, ResourceClaim
from cluster.resources import Key
from scheduler.claims.allocation import Given
from scheduler.claims.capacity import amount
from scheduler.claims.inventory import DeviceId, Inventory, PoolId
from scheduler.claims.search import Offer

Parts = tuple[tuple[DeviceId, Mapping[str, int]], ...]
"""Devices that several claims may use, with the amounts that one consumes."""
NOTHING: tuple[frozenset[DeviceId], Parts] = (frozenset(), ())


@dataclass(slots=True, eq=False)
class Choice:
    """Devices that were chosen for a claim and are not shown by it yet."""

    uid: str
    """Of the pod that they were chosen for; others of its group may use them too."""
    given: Given
    sharers: set[str] = field(default_factory=set)
    """UIDs of those."""
    until: float = float("inf")

    @property
    def devices(self) -> frozenset[DeviceId]:
        """Devices that are given whole."""
        return frozenset(each.device.id for each in self.given if each.consumed is None and not each.demand.admin)

    @property
    def parts(self) -> Parts:
        """Devices of which a part is given."""
        parts = ((each.device.id, each.consumed, each.demand.admin) for each in self.given)
        return tuple((device, consumed) for device, consumed, admin in parts if consumed is not None and not admin)

    @property
    def used(self) -> frozenset[DeviceId]:
        """Devices that are given whole or in part."""
        return self.devices.union(device for device, _ in self.parts)

    def reached_by(self, node: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node reaches all of the devices."""
        return all(each.device.reached_by(node, labels) for each in self.given)


class Holdings:
    """Devices in use, by claim."""

    def __init__(self) -> None:
        self._shown: dict[Key, tuple[frozenset[DeviceId], Parts]] = {}
        self._whole: Counter[DeviceId] = Counter()
        self._parts: dict[DeviceId, Counter[str]] = {}
        self._users: Counter[DeviceId] = Counter()
        """Uses of devices that several claims may use."""
        self._chosen: dict[Key, Choice] = {}
        self._picked: Counter[DeviceId] = Counter()
        """Devices that were chosen, whole or in part."""
        self._pools: Counter[PoolId] = Counter()
        """Uses of devices, shown and chosen, by their pool."""

    @property
    def chosen(self) -> Mapping[Key, Choice]:
        """What was chosen for claims that do not show it yet."""
        return self._chosen

    def choose(self, key: Key, choice: Choice) -> Iterable[DeviceId]:
        """Take the devices of a choice; return those that are used otherwise now."""
        changed = {*self.drop(key), *choice.used}
        self._chosen[key] = choice
        self._picked.update(choice.used)
        self._pools.update(device[:2] for device in choice.used)
        return changed

    def drop(self, key: Key) -> Iterable[DeviceId]:
        """Forget a choice; return its devices."""
        choice = self._chosen.pop(key, None)
        if choice is None:
            return ()
        for device in choice.used:
            self._picked[device] -= 1
            if not self._picked[device]:
                del self._picked[device]
            self._in_pool(device, -1)
        return choice.used

    def show(self, key: Key, claim: ResourceClaim | None) -> Iterable[DeviceId]:
        """Take what a claim shows, None for one that is gone; return the devices that are used otherwise now."""
        before = self._shown.pop(key, NOTHING)
        self._count(before, -1)
        allocation = claim.status.allocation if claim is not None else None
        after = _shown(allocation) if allocation is not None else NOTHING
        if allocation is not None:
            self._shown[key] = after
            self._count(after, 1)
        changed = {*before[0], *after[0], *(device for device, _ in (*before[1], *after[1]))}
        if claim is None or allocation is not None:
            changed.update(self.drop(key))
        return changed

    def offer(
        self, inventory: Inventory, node: str, labels: Mapping[str, str], *, uid: str, own: Iterable[Key]
    ) -> Offer:
        """Return what a node offers to a pod; what was chosen for the pod's `own` claims before is free to it."""
        devices = inventory.on(node, labels)
        taken = {device.id for device in devices if device.id in self._whole}
        shares = {each.id: dict(self._parts[each.id]) for each in devices if each.shareable and each.id in self._users}
        mine = {key for key in own if key in self._chosen and self._chosen[key].uid == uid}
        if self._picked and any(device.id in self._picked for device in devices):
            self._add_chosen({device.id for device in devices}, mine, taken, shares)
        counters = inventory.counters_left(devices, _InUse(self, mine)) if inventory.has_counters else {}
        return Offer(devices, taken, counters, shares, not inventory.unsettled(node, labels))

    def likeness(self, inventory: Inventory, node: str) -> Hashable | None:
        """Return what decides how the node serves pods without choices of their own; None where that is not known.

        Nodes of one likeness have devices that say the same, of which the same are taken.
        """
        said = inventory.alike(node)
        if said is None:
            return None
        if not any(pool in self._pools for pool in inventory.pools_on(node)):
            return said
        devices = inventory.on(node, {})
        used = [place for place, device in enumerate(devices) if self.uses(device.id, ())]
        if any(devices[place].shareable for place in used):
            return None
        return said, tuple(used)

    def uses(self, device: DeviceId, free: Collection[Key]) -> bool:
        """Return whether the device is in use, but for what was chosen for the claims `free`."""
        if device in self._whole or device in self._users:
            return True
        return self._picked[device] > sum(device in self._chosen[key].used for key in free)

    def _add_chosen(
        self, devices: set[DeviceId], mine: set[Key], taken: set[DeviceId], shares: dict[DeviceId, dict[str, int]]
    ) -> None:
        for key, choice in self._chosen.items():
            if key in mine:
                continue
            taken |= choice.devices & devices
            for device, consumed in choice.parts:
                known = shares.setdefault(device, {})
                for name, part in consumed.items():
                    known[name] = known.get(name, 0) + part

    def _in_pool(self, device: DeviceId, sign: int) -> None:
        self._pools[device[:2]] += sign
        if not self._pools[device[:2]]:
            del self._pools[device[:2]]

    def _count(self, shown: tuple[frozenset[DeviceId], Parts], sign: int) -> None:
        whole, parts = shown
        for device in whole:
            self._in_pool(device, sign)
            self._whole[device] += sign
            if not self._whole[device]:
                del self._whole[device]
        for device, consumed in parts:
            self._in_pool(device, sign)
            self._users[device] += sign
            used = self._parts.setdefault(device, Counter())
            for name, part in consumed.items():
                used[name] += sign * part
            if not self._users[device]:
                del self._users[device], self._parts[device]


def _shown(allocation: Allocation) -> tuple[frozenset[DeviceId], Parts]:
    whole: set[DeviceId] = set()
    parts: list[tuple[DeviceId, Mapping[str, int]]] = []
    for each in allocation.devices.results:
        device = (each.driver, each.pool, each.device)
        if each.admin_access:
            continue
        if each.share_id:
            parts.append((device, _amounts(each.consumed_capacity)))
        else:
            whole.add(device)
    return frozenset(whole), tuple(parts)


@dataclass(frozen=True, slots=True, eq=False)
class _InUse:
    """Devices in use on whatever node."""

    holdings: Holdings
    free: Collection[Key]

    def __contains__(self, device: object) -> bool:
        return isinstance(device, tuple) and self.holdings.uses(device, self.free)


def _amounts(stated: Mapping[str, str | int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in stated.items():
        try:
            found[name] = amount(value)
        except ValueError:
            continue
    return found
