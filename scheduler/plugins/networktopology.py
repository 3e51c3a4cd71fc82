"""NetworkTopology: a gang in one part of the network that holds all of it, and pods near those of the same selector.

The first member that is tried makes a plan for all pending members (`scheduler.gang.network` decides); it and the
others go where the plan says. A plan is made anew when a node turns out to take a member no more.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.crds import CLUSTER_NETWORK_TOPOLOGY, POD_GROUP, ClusterNetworkTopology
from api.crds.placement import TopologyDetail
from api.kube.annotations import AnnotationError
from api.kube.objects import Node
from api.protocol import (
    ANNOTATION_NETWORK_TOPOLOGY_INDEX,
    ANNOTATION_NETWORK_TOPOLOGY_SELECTOR,
    ANNOTATION_NETWORK_TOPOLOGY_SPEC,
)
from cluster.resources import Key, custom, merge_patch
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodClass, PodInfo
from scheduler.framework import (
    MAX_SCORE,
    Action,
    Attempt,
    Bits,
    Failure,
    Handle,
    Nomination,
    ObjectEvent,
    Plugin,
    Reason,
    Scope,
    Scores,
    Verb,
    Write,
)
from scheduler.gang.network import Gathering, NetworkError, NetworkTree, layers_of, order
from scheduler.gang.search import LOOKED_AT, Search, Wanted, estimated, laid_out, untried_rows
from scheduler.gang.spec import gang_id
from scheduler.matching.hostports import host_ports

TOPOLOGIES = custom(CLUSTER_NETWORK_TOPOLOGY)
POD_GROUPS = custom(POD_GROUP)
OBJECT = Key("", "default")
"""The object that says how the network is layered."""
OUTSIDE, NOWHERE, UNKNOWN, UNFINISHED = 1, 2, 4, 8
SHARING = ("NodeNUMAResource", "DeviceShare")
"""Plugins that give a pod CPUs or devices of its own: only that shows how many members a node takes."""
ENDED = "NetworkTopology: ended"
"""In the memo of an attempt: its search for a plan without avoided nodes, which ended."""
REPORT_SECONDS = 10.0
MAX_DETAILS = 2000
"""Domains that a status may state: an object has an end."""
MAX_TRIES = 12
"""Plans that are tried for a gang."""
WEIGHED_PER_ATTEMPT = 10_000
"""Nodes that are weighed in one attempt: each plan that is tried weighs all, and two are tried in any case."""
MAX_SEARCHES = 16
"""Plans that are worked out at once; a further gang is planned in one attempt, or has its turn when one ends."""
IDLE_SEARCH_SECONDS = 60.0
"""A plan that no attempt went on with for so long gives its place to another gang's."""


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """What a class of pods asks of the network."""

    gathering: Gathering | None = None
    selector: str = ""
    error: str = ""


@dataclass(slots=True)
class Plan:
    """The rows of a gang's members by UID, and the members that were tried so far."""

    rows: Mapping[str, Row]
    last_resort: bool
    """Avoided nodes are among those that it was made of."""
    tried: set[str] = field(default_factory=set)


class NetworkTopology(Plugin[NetworkSpec]):
    """Keeps members of a gang to the nodes of a plan; see the module docstring."""

    name = "NetworkTopology"
    rank = 400
    scope = Scope.CLUSTER
    watches = (TOPOLOGIES, POD_GROUPS)
    requeue_on = frozenset(
        {"nodes/add", "nodes/update", "pods/delete", "clusternetworktopologies/add", "clusternetworktopologies/update"}
    )

    def __init__(self, config: Any, handle: Handle) -> None:
        super().__init__(config, handle)
        self._tree: NetworkTree | None = None
        self._stale = True
        """The tree is to be made anew."""
        self._problem = ""
        self._plan: Plan | None = None
        self._planning = False
        """A plan is tried: it says itself where members go."""
        self._searches: dict[tuple[frozenset[str], bool], Search] = {}
        """Plans that are worked out, by the UIDs of their members and whether avoided nodes may be in them."""
        self._unfinished: set[str] = set()
        """Members whose plan goes on with the next tick."""
        self._stated: list[dict[str, Any]] | None = None
        """Status last written, or found as it should be."""
        self._looked_at = -REPORT_SECONDS
        self._selected: dict[str, Counter[Row]] = {}
        """Pods by their selector and row."""

    # Observer

    def node_changed(self, row: Row, node: Node) -> None:
        """A node that came into another part; other changes leave the tree as it is."""
        self._stale = self._stale or self._tree is None or not self._tree.holds(row, node)

    def node_removed(self, row: Row) -> None:
        """A part lost a node."""
        self._stale = True

    def pod_added(self, row: Row, info: PodInfo) -> None:
        """Count the pod by its selector."""
        selector = info.pod.metadata.annotations.get(ANNOTATION_NETWORK_TOPOLOGY_SELECTOR)
        if selector:
            self._selected.setdefault(selector, Counter())[row] += 1

    def pod_removed(self, row: Row, info: PodInfo) -> None:
        """Uncount the pod."""
        selector = info.pod.metadata.annotations.get(ANNOTATION_NETWORK_TOPOLOGY_SELECTOR)
        if selector:
            self._selected[selector] -= Counter({row: 1})
            if not self._selected[selector]:
                del self._selected[selector]

    def on_object(self, event: ObjectEvent) -> None:
        """The layers changed, or what a gang asks for."""
        if event.resource.plural == TOPOLOGIES.plural:
            layers = [item.spec if item is not None else None for item in (event.before, event.after)]
            if layers[0] != layers[1] or event.action is not Action.UPDATE:
                self._stale = True
                self.handle.invalidate()
        else:
            before, after = (_asked(item) for item in (event.before, event.after))
            if before != after:
                self.handle.invalidate()

    def leads(self) -> None:
        """State the tree anew."""
        self._stated, self._looked_at = None, -REPORT_SECONDS

    def tick(self, now: float) -> Iterable[Write]:
        """Go on with plans, make the tree before an attempt needs it, and state it in the object's status."""
        tree = self._current_tree()
        if self._unfinished:
            self.handle.activate(self._unfinished)
            self._unfinished.clear()
        if now - self._looked_at < REPORT_SECONDS:
            return ()
        self._looked_at = now
        details = tree.details() if tree is not None else []
        known: ClusterNetworkTopology | None = self.handle.objects(TOPOLOGIES).get(OBJECT)
        if known is None or not details or len(details) > MAX_DETAILS or details == self._stated:
            return ()
        self._stated = details
        if msgspec.convert(details, list[TopologyDetail]) == known.status.detail_status:
            return ()
        body = {"status": {"detailStatus": details}}
        return (Write(Verb.PATCH_STATUS, TOPOLOGIES, OBJECT, merge_patch(body)),)

    # One attempt

    def prepare(self, info: PodInfo) -> NetworkSpec | None:
        """What the pod's gang asks for, by its PodGroup or the pod, and the pod's selector; None without either."""
        meta = info.pod.metadata
        selector = meta.annotations.get(ANNOTATION_NETWORK_TOPOLOGY_SELECTOR, "")
        gang = gang_id(meta.namespace, meta.labels, meta.annotations)
        group = self.handle.objects(POD_GROUPS).get(Key(*gang.split("/", 1))) if gang is not None else None
        text = _asked(info.pod if group is None else group) if gang is not None else ""
        if not text:
            return NetworkSpec(selector=selector) if selector else None
        try:
            return NetworkSpec(Gathering.read(text), selector)
        except AnnotationError as error:
            return NetworkSpec(error=f"gang {gang}: {ANNOTATION_NETWORK_TOPOLOGY_SPEC}: {error}")

    def pre_filter(self, attempt: Attempt, spec: NetworkSpec) -> Reason | None:
        """Refuse what cannot be read: its pods might have to be near each other."""
        return Reason(spec.error, resolvable=False) if spec.error else None

    def reasons(self, spec: NetworkSpec) -> tuple[Reason, ...]:
        """Meaning of the filter's bits."""
        return (
            Reason("node(s) outside of the part of the network that the gang is placed in", resolvable=False),
            Reason("node(s) in no part of the network that holds the whole gang", resolvable=False),
            Reason(f"node(s) in no network that is known: {self._unknown()}", resolvable=False),
            Reason("node(s) that the gang's plan, which is being worked out, has not settled yet", resolvable=False),
        )

    def filter(self, attempt: Attempt, spec: NetworkSpec, rows: Rows) -> Bits | None:
        """All rows but the planned one, for the attempt itself; what is only tried makes no plan."""
        gathering, possible = spec.gathering, attempt.possible
        if gathering is None or self._planning or attempt.pod.outside:
            return None
        tree = self._current_tree()
        if attempt.simulated or possible is None:
            return self._beside_kin(attempt, gathering, tree, rows) if tree is not None else None
        if tree is None:
            return np.full(possible.shape[0], UNKNOWN, dtype=np.int64) if gathering.strict else None
        row = self._planned(attempt, spec, gathering, possible, tree)
        if self.name in attempt.unfinished:
            return np.full(possible.shape[0], UNFINISHED, dtype=np.int64)
        if row is None:
            return np.full(possible.shape[0], NOWHERE, dtype=np.int64) if gathering.strict else None
        bits = np.full(possible.shape[0], OUTSIDE, dtype=np.int64)
        bits[row] = 0
        return bits

    def post_filter(self, attempt: Attempt, spec: NetworkSpec, failure: Failure) -> Nomination | None:
        """No victims where room alone is not enough: without a topology, or in multiples."""
        if self.name in attempt.unfinished:
            return Nomination("", message="preemption: not tried before the gang's plan is worked out.", last=True)
        if spec.gathering is None or not spec.gathering.strict:
            return None
        if self._current_tree() is not None and not spec.gathering.multiples:
            return None
        return Nomination(
            "", message="preemption: not tried for a gang in multiples, or without a topology.", last=True
        )

    def pre_score(self, attempt: Attempt, spec: NetworkSpec, feasible: NDArray[np.bool_]) -> None:
        """Keep the rows that are compared."""
        attempt.memo[self.name] = feasible

    def score(self, attempt: Attempt, spec: NetworkSpec, rows: Rows) -> Scores | None:
        """The rows nearest to pods of the same selector first, by their place in that order."""
        feasible: NDArray[np.bool_] | None = attempt.memo.get(self.name)
        tree = self._current_tree()
        if not spec.selector or tree is None or feasible is None:
            return None
        found = [int(row) for row in np.flatnonzero(feasible)]
        tree.weigh(dict.fromkeys(found, 1), self._selected.get(spec.selector, {}), {})
        leaves = [tree.leaves[row] for row in found if row in tree.leaves]
        leaves.sort(key=lambda leaf: order(leaf, roomiest=False))
        scores = np.zeros(attempt.snapshot.rows_used, dtype=np.int64)
        for place, leaf in enumerate(leaves):
            scores[leaf.row] = MAX_SCORE - place * MAX_SCORE // max(len(leaves) - 1, 1)
        return scores[rows]

    # Internals

    def _current_tree(self) -> NetworkTree | None:
        if not self._stale:
            return self._tree
        self._stale, self._tree, self._plan, self._problem = False, None, None, ""
        stated: ClusterNetworkTopology | None = self.handle.objects(TOPOLOGIES).get(OBJECT)
        if stated is not None:
            snapshot = self.handle.snapshot
            nodes = ((row, node) for row, node in enumerate(snapshot.nodes) if node is not None)
            try:
                self._tree = NetworkTree(layers_of(stated.spec), nodes)
            except NetworkError as error:
                self._problem = str(error)
        return self._tree

    def _unknown(self) -> str:
        self._current_tree()
        return f"ClusterNetworkTopology default: {self._problem or 'there is no such object'}"

    def _kin(self, info: PodInfo) -> set[str]:
        """UIDs of the pod and the other members of its group."""
        peer = self.handle.peers().get("Coscheduling")
        return {info.uid, *(peer.kin(info) if peer is not None else ())}

    def _beside_kin(self, attempt: Attempt, gathering: Gathering, tree: NetworkTree, rows: Rows) -> Bits | None:
        """All rows outside of the part that holds the members that are placed; None without such a part."""
        if not gathering.must:
            return None
        placed, layer = attempt.snapshot.pods, tree.must_layer(gathering)
        held = {placed[uid].row for uid in self._kin(attempt.pod) - {attempt.pod.uid} if uid in placed}
        parts = {tree.part(row, layer) for row in held}
        (part,) = parts if len(parts) == 1 else (None,)
        if part is None:
            return None
        if isinstance(rows, slice) and rows.stop - rows.start == 1:
            return np.array([0 if tree.part(rows.start, layer) is part else OUTSIDE], dtype=np.int64)
        bits = np.full(attempt.snapshot.rows_used, OUTSIDE, dtype=np.int64)
        bits[list(part.rows())] = 0
        return bits[rows]

    def _planned(
        self, attempt: Attempt, spec: NetworkSpec, gathering: Gathering, possible: NDArray[np.bool_], tree: NetworkTree
    ) -> Row | None:
        """The row of the attempted member, by the plan or a new one; None when no part holds the gang."""
        uid, plan = attempt.pod.uid, self._plan
        if plan is None or not self._holds(plan, attempt, possible):
            rows = self._new_plan(attempt, spec, gathering, possible, tree)
            if rows is None:
                attempt.unfinished.add(self.name)
            plan = self._plan = Plan(rows, attempt.last_resort) if rows else None
        if plan is None:
            return None
        plan.tried.add(uid)
        return plan.rows[uid]

    def _holds(self, plan: Plan, attempt: Attempt, possible: NDArray[np.bool_]) -> bool:
        """Return whether the attempted member goes where the plan says.

        By one with avoided nodes it does so once others hold their places by it, also where its own node is avoided and
        refused therefore: as no other passes then, that node is next.
        """
        uid = attempt.pod.uid
        others = plan.tried - {uid}
        if uid not in plan.rows or others - attempt.snapshot.pods.keys():
            return False
        row = plan.rows[uid]
        if plan.last_resort is attempt.last_resort:
            return bool(possible[row])
        if attempt.last_resort or not others:
            return False
        return bool(possible[row] or self.handle.avoided(attempt, np.array([row]))[0])

    def _new_plan(
        self, attempt: Attempt, spec: NetworkSpec, gathering: Gathering, possible: NDArray[np.bool_], tree: NetworkTree
    ) -> dict[str, Row] | None:
        """Rows for the pending members of the gang; empty when no part holds them, None when the next tick goes on."""
        snapshot = attempt.snapshot
        kin = self._kin(attempt.pod)
        held = Counter(snapshot.pods[uid].row for uid in kin if uid in snapshot.pods)
        members = self._members(attempt.pod, kin)
        uids = frozenset(info.uid for info in members)
        search = self._searches.pop((uids, attempt.last_resort), None) or Search(len(members))
        search.goes_on(snapshot)
        existing = self._selected.get(spec.selector, Counter()) + held if spec.selector else held
        # Members that hold places already belong to multiples that are filled up elsewhere.
        multiples = {} if held else gathering.multiples
        rows = self._searched(attempt, search, members, possible, Wanted(tree, gathering, existing, multiples, held))
        search.generation, search.at = snapshot.generation, attempt.now
        if rows is not None:
            attempt.memo[ENDED] = search
            return rows
        self._keep((uids, attempt.last_resort), search, attempt)
        ended: Search | None = attempt.memo.get(ENDED)
        if ended is not None:
            # The next attempt asks for a plan without avoided nodes first, and need not search all for that again.
            self._keep((uids, False), ended, attempt)
        self._unfinished |= uids
        return None

    def _keep(self, key: tuple[frozenset[str], bool], search: Search, attempt: Attempt) -> None:
        """Keep a search for the next tick, unless others take all places: one that went on before is never lost."""
        uids, _ = key
        if len(self._searches) >= MAX_SEARCHES:
            pending = {attempt.pod.uid, *(info.uid for info in self.handle.pending())}
            oldest = attempt.now - IDLE_SEARCH_SECONDS
            self._searches = {
                (members, avoided): other
                for (members, avoided), other in self._searches.items()
                if members <= pending and (members == uids or members.isdisjoint(uids)) and other.at >= oldest
            }
        if len(self._searches) < MAX_SEARCHES:
            self._searches[key] = search

    def _searched(
        self,
        attempt: Attempt,
        search: Search,
        members: Sequence[PodInfo],
        possible: NDArray[np.bool_],
        wanted: "Wanted",
    ) -> dict[str, Row] | None:
        promises = {info.uid: self.handle.promise(info.uid) for info in members}
        promised = {uid: promise[0] for uid, promise in promises.items() if promise is not None}
        offers = _room(attempt, members, possible)
        offers |= {row: min(count, offers[row]) for row, count in search.exact.items() if row in offers}
        if sum(offers.values()) < len(members):
            return {}
        alike = all(info.cls is attempt.pod.cls for info in members)
        if search.batch and not self._try_batch(attempt, search, offers=offers, members=members, promised=promised):
            return None
        for _ in range(max(2, WEIGHED_PER_ATTEMPT // attempt.snapshot.rows_used)):
            if search.tries >= MAX_TRIES:
                return {}
            exact = search.exact.keys() | (search.certain(offers) if alike else frozenset())
            beside = LOOKED_AT if search.doubted or search.at_most < len(members) else 0
            room = estimated(offers, exact, search.at_most)
            found = wanted.placements(room, len(members), max(1, beside))
            if not found and search.at_most == len(members):
                return {}
            if not found:
                search.at_most, search.doubted = len(members), True
                search.tries += 1
                continue
            untried = untried_rows(found, exact, beside)
            if untried:
                search.batch.extend(untried)
                if not self._try_batch(attempt, search, offers=offers, members=members, promised=promised):
                    return None
                continue
            search.tries += 1
            chosen = [domain.row for domain, count in found[0] for _ in range(count)]
            rows = laid_out(members, chosen, promised)
            full = self._full(attempt, members, rows)
            if full is None:
                return rows
            row, fitting = full
            search.doubted = True
            offers[row] = search.exact[row] = min(offers[row] - 1, fitting)
        return None

    def _try_batch(
        self,
        attempt: Attempt,
        search: Search,
        *,
        offers: dict[Row, int],
        members: Sequence[PodInfo],
        promised: Mapping[str, Row],
    ) -> bool:
        """Find out how many members the batch's rows take; False where the next attempt goes on with the others."""
        while search.batch:
            if search.members_left <= 0:
                return False
            row = search.batch.popleft()
            if row not in offers:
                continue  # it became impossible since
            count = self._taken(attempt, _on(row, members, promised))
            search.members_left -= count + 1
            search.short = search.short or count < offers[row]
            offers[row] = search.exact[row] = count
        search.tries += 1
        if not search.doubted and (search.short or search.at_most < len(members)):
            search.at_most = max(1, *search.exact.values(), 0)
        search.short = False
        return True

    def _members(self, own: PodInfo, kin: set[str]) -> list[PodInfo]:
        """The pending members in the order of their index, then of their names."""
        placed = self.handle.snapshot.pods
        found = {
            info.uid: info
            for info in (*self.handle.pending(), own)
            if info.uid in kin and info.uid not in placed and not info.outside and not info.pod.spec.scheduling_gates
        }
        return sorted(found.values(), key=_rank)

    def _full(self, attempt: Attempt, members: Sequence[PodInfo], rows: Mapping[str, Row]) -> tuple[Row, int] | None:
        """The first row that does not take a member of the plan, and how many it took; None when all are taken."""
        count = self._taken(attempt, ((info, rows[info.uid]) for info in members))
        if count == len(members):
            return None
        row = rows[members[count].uid]
        return row, sum(rows[info.uid] == row for info in members[:count])

    def _taken(self, attempt: Attempt, places: Iterable[tuple[PodInfo, Row]]) -> int:
        """Number of members that are taken one after another, with CPUs and devices of their own, until one is not."""
        snapshot, peers = attempt.snapshot, self.handle.peers()
        sharing = [peers[name] for name in SHARING if name in peers]
        specs: dict[PodClass, list[tuple[Plugin[Any], Any]]] = {}
        tried: list[PodInfo] = []
        self._planning = True
        try:
            with snapshot.trial() as trial:
                for info, row in places:
                    own = Attempt(info, snapshot, attempt.now, simulated=True)
                    if not self.handle.fits(own, row):
                        return len(tried)
                    if info.cls not in specs:
                        found = [(plugin, plugin.prepare(info)) for plugin in sharing]
                        specs[info.cls] = [(plugin, spec) for plugin, spec in found if spec is not None]
                    tried.append(info)
                    if any(plugin.reserve(own, spec, row) is not None for plugin, spec in specs[info.cls]):
                        return len(tried) - 1
                    trial.add(info, row)
            return len(tried)
        finally:
            self._planning = False
            for info in tried:
                info.patch.clear()


def _asked(item: Any) -> str:
    """The annotation of a pod or PodGroup; empty without one."""
    return item.metadata.annotations.get(ANNOTATION_NETWORK_TOPOLOGY_SPEC, "") if item is not None else ""


def _rank(info: PodInfo) -> tuple[int, str]:
    text = info.pod.metadata.annotations.get(ANNOTATION_NETWORK_TOPOLOGY_INDEX, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 10**9, info.key


def _room(attempt: Attempt, members: Sequence[PodInfo], possible: NDArray[np.bool_]) -> dict[Row, int]:
    """Members for which possible rows have resources and ports: no less than they take."""
    snapshot = attempt.snapshot
    for info in members:
        snapshot.vector(info)
    least = np.minimum.reduce([snapshot.vector(info) for info in members])
    named = np.flatnonzero(least)
    rows = np.flatnonzero(possible)
    free = snapshot.allocatable[rows][:, named] - attempt.requested(rows)[:, named]
    offers = (free // least[named]).min(axis=1).clip(1, _with_ports(members))
    return dict(zip(rows.tolist(), offers.tolist(), strict=True))


def _with_ports(members: Sequence[PodInfo]) -> int:
    """Members that one node takes at most, where those of a class ask for the same host ports."""
    classes = Counter(info.cls for info in members)
    ports = {info.cls: bool(host_ports(info.pod)) for info in members}
    return sum(1 if ports[cls] else count for cls, count in classes.items())


def _on(row: Row, members: Sequence[PodInfo], promised: Mapping[str, Row]) -> list[tuple[PodInfo, Row]]:
    """The members for one row: first those that it is promised to, since it is kept for them."""
    return [(info, row) for info in sorted(members, key=lambda info: promised.get(info.uid) != row)]
