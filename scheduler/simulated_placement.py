"""Simulated placements: the nodes that pods would get if others were gone, answered from the running engine.

Every change is made in trials of the snapshot and undone before the answer is given, so attempts before and after
see the same state. Attempts are marked as simulated (see `scheduler.framework`) and end after `reserve`: gangs and
volume bindings, which wait at `permit`, are answered pod by pod, and no victims are sought.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from api.kube.objects import Pod
from api.placement import PlacementAnswer, PlacementRequest, PodPlacement, Rejection, SimulatedPod
from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.podinfo import DECIDED_ANNOTATIONS, PodInfo
from scheduler.cluster_state.snapshot import Trial
from scheduler.cycle import BARRED, REASON_BITS, ClassResult, Evaluation
from scheduler.engine import Engine
from scheduler.explain.diagnosis import sentence, tally
from scheduler.framework import Attempt, Failure, Reason

EXCLUDED = Reason("node(s) excluded by the request", resolvable=False)

Reserved = tuple[Attempt, ClassResult, Row]


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A pod to place, None when its UID is unknown, and the rows that it may not use."""

    entry: SimulatedPod
    info: PodInfo | None
    excluded: NDArray[np.intp]


def simulate(engine: Engine, request: PlacementRequest, now: float) -> PlacementAnswer:
    """Place the pods of the request in turn and undo it. Raises QuantityError for requests that cannot be read."""
    snapshot = engine.snapshot
    candidates = [_candidate(engine, request, entry, index) for index, entry in enumerate(request.pods)]
    reserved: list[Reserved] = []
    with snapshot.trial() as departures:
        for uid in _leaving(engine, request, candidates):
            departures.remove(uid)
        try:
            with snapshot.trial() as arrivals:
                placements = [_place(engine, candidate, arrivals, reserved, now) for candidate in candidates]
        finally:
            # After the simulated pods went and before the real ones return, as plugins see a failed placement.
            for attempt, class_result, row in reversed(reserved):
                for prepared in reversed(class_result.at("unreserve")):
                    prepared.plugin.unreserve(attempt, prepared.spec, row)
    excluded = {*request.excluded_nodes, *(name for entry in request.pods for name in entry.excluded_nodes)}
    named = {*request.gone_pods, *(entry.uid for entry in request.pods if entry.uid)}
    return PlacementAnswer(
        placements,
        nodes=snapshot.node_count,
        at_seconds=now,
        unknown_pods=sorted(uid for uid in named if _known_pod(engine, uid) is None),
        unknown_nodes=sorted(name for name in excluded if snapshot.row(name) is None),
    )


def _candidate(engine: Engine, request: PlacementRequest, entry: SimulatedPod, index: int) -> Candidate:
    pod = entry.pod if entry.pod is not None else _known_pod(engine, entry.uid)
    info = None
    if pod is not None:
        # The UID of a pod in full may be that of a pod which shows up later; plugins must not mix the two.
        uid = entry.uid or f"simulated-{index}"
        info = engine.classes.info(_made_anew(pod, uid))
    rows = {engine.snapshot.row(name) for name in (*request.excluded_nodes, *entry.excluded_nodes)}
    return Candidate(entry, info, np.array(sorted(row for row in rows if row is not None), dtype=np.intp))


def _known_pod(engine: Engine, uid: str) -> Pod | None:
    placement, queued = engine.snapshot.pods.get(uid), engine.queue.get(uid)
    return placement.info.pod if placement is not None else queued.info.pod if queued is not None else None


def _made_anew(pod: Pod, uid: str) -> Pod:
    """The pod as its owner would create it: unbound, pending, without shares of a node."""
    annotations = {key: text for key, text in pod.metadata.annotations.items() if key not in DECIDED_ANNOTATIONS}
    metadata = replace(pod.metadata, uid=uid, annotations=annotations, deletion_timestamp=None)
    status = replace(pod.status, phase="Pending", nominated_node_name="", conditions=[], start_time=None)
    return replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=""), status=status)


def _leaving(engine: Engine, request: PlacementRequest, candidates: Sequence[Candidate]) -> Iterable[str]:
    """UIDs of placed pods to assume gone, each once."""
    uids = dict.fromkeys((*request.gone_pods, *(candidate.entry.uid for candidate in candidates)))
    names = {candidate.info.key for candidate in candidates if candidate.info is not None and candidate.entry.pod}
    if names:
        uids |= dict.fromkeys(uid for uid, placed in engine.snapshot.pods.items() if placed.info.key in names)
    return uids


def _place(engine: Engine, candidate: Candidate, arrivals: Trial, reserved: list[Reserved], now: float) -> PodPlacement:
    info = candidate.info
    if info is None:
        return PodPlacement(candidate.entry.uid, message="the scheduler knows no pod of this UID")
    gate = engine.gate(info)
    if gate is not None:
        return _refused(engine, candidate, info, gate)
    attempt = Attempt(info, engine.snapshot, now, simulated=True)
    # A pod that runs is not moved to where it would only be put for want of another node.
    evaluation = engine.cycle.evaluate(attempt, excluded=candidate.excluded, last_resort=False)
    row = _best_row(engine, info, evaluation)
    if row is None:
        failure = _failure(evaluation, candidate.excluded)
        if failure.reason is not None:
            return _refused(engine, candidate, info, failure.reason)
        rejections = [_rejection(reason, count) for reason, count in tally(failure, engine.snapshot)]
        return _placement(candidate, info, message=sentence(failure, engine.snapshot), rejections=rejections)
    reserved.append((attempt, evaluation.class_result, row))
    for prepared in evaluation.class_result.at("reserve"):
        reason = prepared.plugin.reserve(attempt, prepared.spec, row)
        if reason is not None:
            named = reason if reason.plugin else Reason(reason.text, reason.resolvable, prepared.plugin.name)
            return _refused(engine, candidate, info, named)
    arrivals.add(info, row)
    return _placement(
        candidate,
        info,
        node=engine.snapshot.names[row],
        score=int(evaluation.totals[row]),
        feasible_nodes=int((evaluation.totals > BARRED).sum()),
    )


def _best_row(engine: Engine, info: PodInfo, evaluation: Evaluation) -> Row | None:
    """The row nominated to the pod if it takes it, else the first of the best: the engine's draw is not touched."""
    totals = evaluation.totals
    nominated = engine.nominator.row(info.uid)
    if nominated is not None and nominated < totals.shape[0] and totals[nominated] > BARRED:
        return nominated
    row = int(totals.argmax()) if totals.shape[0] else None
    return row if row is not None and totals[row] > BARRED else None


def _failure(evaluation: Evaluation, excluded: NDArray[np.intp]) -> Failure:
    """The reasons row by row, excluded rows with that reason alone."""
    failure = evaluation.failure
    if failure.reason is not None or not excluded.size:
        return failure
    reasons = failure.reasons[:REASON_BITS]
    bits = failure.bits.copy()
    bits[excluded] = 1 << len(reasons)
    return Failure((*reasons, EXCLUDED), bits)


def _refused(engine: Engine, candidate: Candidate, info: PodInfo, reason: Reason) -> PodPlacement:
    """No node for one reason that concerns the pod as a whole."""
    nodes = engine.snapshot.node_count
    message = f"0/{nodes} nodes are available: {reason.text}."
    return _placement(candidate, info, message=message, rejections=[_rejection(reason, nodes)])


def _rejection(reason: Reason, nodes: int) -> Rejection:
    return Rejection(reason.text, reason.plugin, nodes, reason.resolvable)


def _placement(
    candidate: Candidate,
    info: PodInfo,
    *,
    node: str = "",
    score: int = 0,
    feasible_nodes: int = 0,
    message: str = "",
    rejections: Sequence[Rejection] = (),
) -> PodPlacement:
    name, namespace = info.pod.metadata.name, info.namespace
    return PodPlacement(candidate.entry.uid, namespace, name, node, score, feasible_nodes, message, list(rejections))
