"""InterferenceAware: nodes by predicted lost seconds, and sensitive pods away from nodes where a pod suffers already.

A node where a pod suffers is a last resort: a sensitive pod goes there when no other takes it, to the best of them.
The prediction sums sensitivity times aggressiveness over the pod and the residents (`scheduler.interference`),
from WorkloadProfile objects; live verdicts come from the extensions of NodeMetrics.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.crds import NODE_METRIC, WORKLOAD_PROFILE, WorkloadProfile
from api.kube.interference import RESOURCES
from api.kube.objects import Node
from api.kube.workload import Workload, workload_of
from api.protocol import ANNOTATION_SLOW_RATIO, LABEL_QOS_CLASS
from api.qos import QoSClass
from cluster.resources import Key, custom
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Action, Attempt, Bits, Handle, ObjectEvent, Plugin, Reason, Route, Scores, Write
from scheduler.interference.pressure_matrix import Cost, PressureMatrix, probe_of
from scheduler.interference.profile import MICRO, Profiles, Traits
from scheduler.interference.verdicts import NodeVerdict, from_metric

PROFILES = custom(WORKLOAD_PROFILE)
NODE_METRICS = custom(NODE_METRIC)
NODE_TYPE_LABEL = "node.kubernetes.io/instance-type"
CULPRIT_BIT = 1 << len(RESOURCES)
MOST_LOST = 1000.0
"""Lost seconds per second that a verdict counts for at most."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of InterferenceAware."""

    profiles: list[WorkloadProfile] = msgspec.field(default_factory=list)
    """Profiles that hold until objects of the same name replace them."""
    minimum_samples: int = 0
    """Profiles made of fewer observations are not believed."""
    half_score_lost_seconds: float = 0.05
    """Predicted lost seconds per second that halve a node's score."""
    sensitive_lost_seconds: float = 0.02
    """A pod that loses this much per unit of pressure on a resource stays off nodes under verdict for it."""
    verdict_lost_seconds: float = 0.0
    """Verdicts about less than this many lost seconds per second are passed over."""
    verdict_seconds: float = 300.0
    """A verdict without an end holds for this long after it was last stated."""
    strict: bool = False
    """Leave a sensitive pod pending where every node that would take it is under verdict; otherwise it is bound to the
    node that loses least, with the Event `LastResort`."""


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourSpec:
    """A class of pods as neighbours."""

    workload: Workload | None
    probes: NDArray[np.int64]
    """int64[node types, width]: first the traits on any type, then those on types of `types`."""
    types: tuple[str, ...]
    sensitive: int
    """Bits of the resources it is sensitive to."""

    @property
    def culprit(self) -> str:
        """Name of the workload in verdicts; none has the empty one."""
        named = self.workload
        return "" if named is None else "/".join((named.kind, named.namespace, named.name))

    @property
    def profiled(self) -> bool:
        """Return whether anything is known of it: without, all nodes cost the same."""
        return bool(self.probes.any())


@dataclass(slots=True, eq=False)
class Stated:
    """Verdicts of a row, with the time at which the node stated them."""

    verdicts: tuple[NodeVerdict, ...] = ()
    at_seconds: float = 0.0


class Interference(Plugin[NeighbourSpec]):
    """Avoids nodes by live verdicts and scores by predicted loss."""

    name = "InterferenceAware"
    rank = 315
    requeue_on = frozenset(
        {
            "nodes/add",
            "nodes/update",
            "pods/delete",
            "nodemetrics/update",
            "workloadprofiles/add",
            "workloadprofiles/update",
        }
    )
    watches = (PROFILES, NODE_METRICS)

    def __init__(self, config: Config, handle: Handle) -> None:
        super().__init__(config, handle)
        self.profiles = Profiles(minimum_samples=config.minimum_samples)
        self.pressure_matrix = PressureMatrix(handle.snapshot.capacity)
        self._half = max(1, round(config.half_score_lost_seconds * MICRO))
        self._node_type = handle.snapshot.labels.column(NODE_TYPE_LABEL)
        self._under = handle.snapshot.column(np.int64, 0)
        """Bits of the resources under live verdict."""
        self._slow_percent = handle.snapshot.column(np.int64, 100)
        """Time that work takes on a node, 100 where it is as fast as the fleet."""
        self._stated: dict[Row, Stated] = {}
        self._live: dict[Row, tuple[NodeVerdict, ...]] = {}
        """Live verdicts of the rows that have any."""
        self._accusing: dict[str, set[Row]] = {}
        """Rows by culprit that a live verdict names."""
        self._placed: dict[str, tuple[Row, Workload, Traits]] = {}
        """Residents with a workload, by UID, with the traits they were counted with."""
        self._members: dict[Workload, set[str]] = {}
        self._now = 0.0
        self._has_ticked = False
        """Whether the time is known: the first lists come before it."""
        for profile in config.profiles:
            self.profiles.put(profile)

    # Observer

    def node_changed(self, row: Row, node: Node) -> None:
        """Take up the verdicts of a new node; a changed node type changes what its residents are like."""
        self.pressure_matrix.ensure(self.handle.snapshot.capacity)
        self._slow_percent.values[row] = _slow_percent(node.metadata.annotations.get(ANNOTATION_SLOW_RATIO, ""))
        metric = self.handle.objects(NODE_METRICS).get(Key("", node.name))
        if row not in self._stated and metric is not None:
            self._stated[row] = Stated(from_metric(metric), self._now)
            self._judge(row)
        for uid in list(self.handle.snapshot.residents[row]):
            self._recount(uid)

    def node_removed(self, row: Row) -> None:
        """Forget the row."""
        self.pressure_matrix.clear(row)
        self._stated.pop(row, None)
        self._acquit(row)

    def pod_added(self, row: Row, info: PodInfo) -> None:
        """Count the pod's pressure and sensitivity."""
        workload = workload_of(info.pod)
        if workload is None:
            return
        traits = self.profiles.traits(workload, self._type_of(row))
        self._placed[info.uid] = (row, workload, traits)
        self._members.setdefault(workload, set()).add(info.uid)
        self.pressure_matrix.add(row, traits)

    def pod_removed(self, row: Row, info: PodInfo) -> None:
        """Take the pod's share back as it was counted."""
        known = self._placed.pop(info.uid, None)
        if known is None:
            return
        _, workload, traits = known
        self.pressure_matrix.add(row, traits, -1)
        members = self._members[workload]
        members.discard(info.uid)
        if not members:
            del self._members[workload]

    def on_object(self, event: ObjectEvent) -> None:
        """A profile or a report changed."""
        if event.resource.kind == PROFILES.kind:
            self._on_profile(event)
        else:
            row = self.handle.snapshot.row(event.key.name)
            if row is not None:
                verdicts = () if event.action is Action.DELETE else from_metric(event.after)
                self._stated[row] = Stated(verdicts, self._now)
                self._judge(row)

    def tick(self, now: float) -> Iterable[Write]:
        """Let verdicts expire."""
        self._now = now
        if not self._has_ticked:
            self._has_ticked = True
            for stated in self._stated.values():
                stated.at_seconds = now
        for row in list(self._live):
            self._judge(row)
        return ()

    # One attempt

    def prepare(self, info: PodInfo) -> NeighbourSpec | None:
        """The class's traits on every type of node, and what it must be kept from; None for strangers."""
        workload = workload_of(info.pod)
        types = tuple(sorted(self.profiles.node_types(workload))) if workload else ()
        traits = [self.profiles.traits(workload, kind) for kind in ("", *types)]
        return NeighbourSpec(
            workload, np.array([probe_of(each) for each in traits]), types, self._sensitive_bits(info, traits)
        )

    def reasons(self, spec: NeighbourSpec) -> tuple[Reason, ...]:
        """One per resource, then the pod's own part in a verdict."""
        return (
            *(Reason(f"node(s) under {name} interference that the pod is sensitive to", False) for name in RESOURCES),
            Reason("node(s) where the pod's own workload disturbs a neighbour", resolvable=False),
        )

    def filter(self, attempt: Attempt, spec: NeighbourSpec, rows: Rows) -> Bits | None:
        """What is avoided, where the settings are strict."""
        return self._against(spec, rows) if self.config.strict else None

    def avoid(self, attempt: Attempt, spec: NeighbourSpec, rows: Rows) -> Bits | None:
        """Live verdicts on resources that the pod is sensitive to, or at whose cause its workload is."""
        return None if self.config.strict else self._against(spec, rows)

    def score(self, attempt: Attempt, spec: NeighbourSpec, rows: Rows) -> Scores:
        """100 where nothing is lost, 50 at the configured loss, towards 0 beyond; less on nodes known to be slow.

        On nodes that are avoided, what the verdicts state is added to what is predicted.
        """
        slow = self._slow_percent.values[rows]
        lost: NDArray[np.int64] | int = self.lost(spec, rows) if spec.profiled else 0
        bits = self._against(spec, rows)
        if bits is not None and bits.any():
            lost = lost + self._stated_loss(spec, rows, bits)
        scores: Scores = 10_000 * self._half // ((self._half + lost) * slow)
        return scores

    def lost(self, spec: NeighbourSpec, rows: Rows) -> NDArray[np.int64]:
        """Predicted loss of placing the class, millionths of lost seconds per second, per row."""
        if not spec.types:
            return self.pressure_matrix.lost(spec.probes[0], rows)
        ids = self._node_type.ids[rows]
        wanted = {text: index for index, text in enumerate(self._node_type.texts)}
        types = np.zeros(ids.shape[0], dtype=np.int32)
        for position, kind in enumerate(spec.types, start=1):
            types[ids == wanted.get(kind, -2)] = position
        return self.pressure_matrix.lost_by_type(spec.probes, types, rows)

    # Diagnosis

    def cost(self, info: PodInfo, row: Row) -> Cost:
        """The prediction for a pod on a row, term by term."""
        return self.pressure_matrix.cost(self.profiles.traits(workload_of(info.pod), self._type_of(row)), row)

    def explain(self, info: PodInfo, row: Row) -> str:
        """One sentence about the pod on the node, for people."""
        cost = self.cost(info, row)
        node = self.handle.snapshot.names[row]
        verdicts = ", ".join(f"{each.victim} loses to {each.resource}" for each in self._live.get(row, ()))
        suffix = f"; under verdict: {verdicts}" if verdicts else ""
        if not cost.total:
            return f"no loss predicted for {info.key} on {node}{suffix}"
        return (
            f"{info.key} on {node} would cost {cost.total:.3g} lost s/s: it would lose {_listed(cost.suffered)},"
            f" its neighbours {_listed(cost.imposed)}{suffix}"
        )

    def routes(self) -> Mapping[str, Route]:
        """State of a node, and the prediction for a pending or placed pod on it."""
        return {"node/{name}": self.describe, "predict/{name}/{namespace}/{pod}": self._predict}

    def describe(self, name: str) -> dict[str, Any]:
        """Pressure, predicted mutual loss and live verdicts of a node. LookupError for an unknown one."""
        row = self._row(name)
        residents = self.handle.snapshot.residents[row]
        return {
            "node": name,
            "pressure": self.pressure_matrix.pressure(row),
            "predictedLostSecondsPerSecond": float(self.pressure_matrix.resident_loss(slice(row, row + 1))[0]),
            "residents": {
                info.key: str(self._placed[uid][1]) for uid, info in residents.items() if uid in self._placed
            },
            "verdicts": [
                {"resource": each.resource, "victim": each.victim, "culprits": list(each.culprits), "lost": each.lost}
                for each in self._live.get(row, ())
            ],
        }

    def _predict(self, name: str, namespace: str, pod: str) -> dict[str, str]:
        row = self._row(name)
        placed = (placement.info for placement in self.handle.snapshot.pods.values())
        for info in (*self.handle.pending(), *placed):
            if info.key == f"{namespace}/{pod}":
                return {"explanation": self.explain(info, row)}
        raise LookupError(f"no pod {namespace}/{pod}")

    # Internals

    def _row(self, name: str) -> Row:
        row = self.handle.snapshot.row(name)
        if row is None:
            raise LookupError(f"no node {name}")
        return row

    def _type_of(self, row: Row) -> str:
        index = int(self._node_type.ids[row])
        return self._node_type.texts[index] if index >= 0 else ""

    def _sensitive_bits(self, info: PodInfo, traits: list[Traits]) -> int:
        """Resources whose sensitivity is high on some node type; all for unprofiled latency-sensitive pods."""
        threshold = self.config.sensitive_lost_seconds * MICRO
        bits = 0
        for index in range(len(RESOURCES)):
            if any(each.sensitivity[index] >= threshold for each in traits):
                bits |= 1 << index
        unknown = not any(each.sensitivity.any() or each.aggressiveness.any() for each in traits)
        label = info.labels.get(LABEL_QOS_CLASS, "")
        if unknown and label in set(QoSClass) and QoSClass(label).latency_sensitive:
            return CULPRIT_BIT - 1
        return bits

    def _on_profile(self, event: ObjectEvent) -> None:
        if event.before is not None:
            self._renew(self.profiles.drop(event.before))
        if event.after is not None:
            self._renew(self.profiles.put(event.after))
        self.handle.invalidate()

    def _renew(self, workload: Workload) -> None:
        for uid in self._members.get(workload, ()):
            self._recount(uid)

    def _recount(self, uid: str) -> None:
        known = self._placed.get(uid)
        if known is None:
            return
        row, workload, before = known
        after = self.profiles.traits(workload, self._type_of(row))
        if after is before:
            return
        self.pressure_matrix.add(row, before, -1)
        self.pressure_matrix.add(row, after)
        self._placed[uid] = (row, workload, after)
        self.handle.snapshot.touch(row)

    def _against(self, spec: NeighbourSpec, rows: Rows) -> Bits | None:
        """Reason bits of the rows' live verdicts against the class; None when there are none."""
        if not self._live:
            return None
        bits: Bits = self._under.values[rows] & spec.sensitive
        disturbed = self._accusing.get(spec.culprit)
        if disturbed:
            bits |= np.isin(np.arange(self.handle.snapshot.rows_used)[rows], list(disturbed)) * CULPRIT_BIT
        return bits

    def _stated_loss(self, spec: NeighbourSpec, rows: Rows, bits: Bits) -> NDArray[np.int64]:
        """Loss that the verdicts behind the bits state, millionths of lost seconds per second, per row."""
        lost = np.zeros_like(bits)
        numbers = np.arange(self.handle.snapshot.rows_used)[rows]
        for index in np.flatnonzero(bits):
            lost[index] = sum(
                round(min(max(each.lost, 0.0), MOST_LOST) * MICRO)
                for each in self._live[int(numbers[index])]
                if _bit(each) & spec.sensitive or spec.culprit in each.culprits
            )
        return lost

    def _holding(self, row: Row) -> tuple[NodeVerdict, ...]:
        stated = self._stated.get(row)
        if stated is None:
            return ()
        return tuple(
            verdict
            for verdict in stated.verdicts
            if verdict.lost >= self.config.verdict_lost_seconds and self._holds(verdict, stated.at_seconds)
        )

    def _holds(self, verdict: NodeVerdict, stated_at: float) -> bool:
        if verdict.until_seconds is None:
            return self._now < stated_at + float(self.config.verdict_seconds)
        return verdict.live(self._now)

    def _judge(self, row: Row) -> None:
        """Redo what a row's live verdicts mean."""
        live = self._holding(row)
        if live == self._live.get(row, ()):
            return
        self._acquit(row)
        if live:
            self._live[row] = live
        for culprit in {culprit for verdict in live for culprit in verdict.culprits}:
            self._accusing.setdefault(culprit, set()).add(row)
        self._under.values[row] = reduce(or_, map(_bit, live), 0)
        self.handle.snapshot.touch(row)

    def _acquit(self, row: Row) -> None:
        """Forget the live verdicts of a row."""
        for culprit in {culprit for verdict in self._live.pop(row, ()) for culprit in verdict.culprits}:
            self._accusing[culprit].discard(row)
            if not self._accusing[culprit]:
                del self._accusing[culprit]


def _bit(verdict: NodeVerdict) -> int:
    return 1 << RESOURCES.index(verdict.resource)


def _listed(amounts: Mapping[str, float]) -> str:
    if not amounts:
        return "nothing"
    ordered = sorted(amounts.items(), key=lambda item: -item[1])
    return ", ".join(f"{amount:.3g} to {name}" for name, amount in ordered)


def _slow_percent(text: str) -> int:
    """Return the slowness of an annotation in percent, 100 to 400; 100 for one that cannot be read."""
    try:
        return min(max(round(100 * float(text)), 100), 400)
    except (ValueError, OverflowError):
        return 100
