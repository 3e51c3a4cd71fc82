"""The stock scheduler's extender protocol, answered by the same engine: filter, prioritize, preempt, bind.

A cluster that keeps its scheduler asks per pod. Names of JSON fields are those of
k8s.io/kube-scheduler/extender/v1. Nodes are known by their watch; those of a request that we do not know fail.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from api.kube.objects import Pod
from scheduler.cycle import BARRED, Evaluation
from scheduler.engine import Engine
from scheduler.explain.diagnosis import decode
from scheduler.framework import Attempt
from scheduler.outcome import AttemptOutcome
from scheduler.preemption import BUDGETS, may_go, victims_on

MAX_EXTENDER_SCORE = 10


class NodeList(msgspec.Struct, frozen=True):
    """Nodes sent in full."""

    items: list[dict[str, Any]] = []


class ExtenderArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """A pod and the nodes in question: in full, or by name when the extender is node cache capable."""

    pod: Pod
    nodes: NodeList | None = None
    node_names: list[str] | None = None

    @property
    def names(self) -> list[str]:
        """The nodes in question."""
        if self.node_names is not None:
            return self.node_names
        return [item["metadata"]["name"] for item in (self.nodes.items if self.nodes else [])]


class PodUid(msgspec.Struct, frozen=True):
    """A victim by identity."""

    uid: str = msgspec.field(default="", name="UID")


class MetaVictims(msgspec.Struct, frozen=True):
    """Victims on a node by identity."""

    pods: list[PodUid] = msgspec.field(default_factory=list, name="Pods")
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class Victims(msgspec.Struct, frozen=True):
    """Victims on a node in full."""

    pods: list[Pod] = msgspec.field(default_factory=list, name="Pods")
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class PreemptionArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """The victims that the stock scheduler would choose, node by node."""

    pod: Pod
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None

    @property
    def proposal(self) -> dict[str, tuple[list[str], int]]:
        """Victims' UIDs and broken budgets by node."""
        if self.node_name_to_meta_victims:
            return {
                name: ([pod.uid for pod in victims.pods], victims.violations)
                for name, victims in self.node_name_to_meta_victims.items()
            }
        return {
            name: ([pod.metadata.uid for pod in victims.pods], victims.violations)
            for name, victims in (self.node_name_to_victims or {}).items()
        }


class BindingArgs(msgspec.Struct, frozen=True):
    """The node that the stock scheduler chose."""

    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


def filter_nodes(engine: Engine, args: ExtenderArgs, now: float) -> dict[str, Any]:
    """ExtenderFilterResult: nodes that pass, and why the others fail.

    Nodes where preemption cannot help are listed apart, so that the stock scheduler does not try.
    """
    engine.seen_outside(args.pod, now)
    evaluation = _evaluated(engine, args, now)
    passed: list[str] = []
    failed: dict[str, str] = {}
    hopeless: dict[str, str] = {}
    for name in args.names:
        row = engine.snapshot.row(name)
        if row is None:
            failed[name] = "node not known yet"
        elif evaluation.totals[row] > BARRED:
            passed.append(name)
        else:
            reasons = (
                (evaluation.reason,)
                if evaluation.reason is not None
                else decode(int(evaluation.bits[row]), evaluation.class_result.reasons)
            )
            text = "; ".join(reason.text for reason in reasons) or "held for a more important pod"
            (failed if all(reason.resolvable for reason in reasons) else hopeless)[name] = text
    result: dict[str, Any] = {
        "FailedNodes": failed,
        "FailedAndUnresolvableNodes": hopeless,
        "Error": "",
    }
    if args.node_names is not None:
        return result | {"NodeNames": passed}
    passing = set(passed)
    items = [item for item in (args.nodes.items if args.nodes else []) if item["metadata"]["name"] in passing]
    return result | {"Nodes": {"apiVersion": "v1", "kind": "NodeList", "items": items}}


def prioritize_nodes(engine: Engine, args: ExtenderArgs, now: float) -> list[dict[str, Any]]:
    """HostPriorityList, 0 to 10: only our best nodes get 10, so that rounding never makes another one win."""
    evaluation = _evaluated(engine, args, now)
    totals = {name: _total(engine, evaluation, name) for name in args.names}
    return [{"Host": name, "Score": score} for name, score in extender_scores(totals).items()]


def extender_scores(totals: Mapping[str, int]) -> dict[str, int]:
    """Totals brought to 0..10: 10 for the largest alone, at most 9 for all others."""
    peak = max(totals.values(), default=0)
    return {
        name: MAX_EXTENDER_SCORE
        if total == peak and total > BARRED
        else max(0, total) * (MAX_EXTENDER_SCORE - 1) // max(peak, 1)
        for name, total in totals.items()
    }


def preempt(engine: Engine, args: PreemptionArgs, now: float) -> dict[str, Any]:
    """ExtenderPreemptionResult: nodes where leaving helps by our filters too, with the victims it takes.

    A node whose proposed victims suffice keeps them; else we say what it takes; else it is left out.
    """
    info = engine.classes.info(args.pod)
    attempt = engine.cycle.attempt(info, now)
    accepted: dict[str, Any] = {}
    for name, (uids, violations) in args.proposal.items():
        row = engine.snapshot.row(name)
        if row is None:
            continue
        if _suffices(engine, attempt, row, uids):
            chosen, broken = uids, violations
        else:
            budgets = tuple(engine.objects(BUDGETS).values())
            candidate = victims_on(attempt, row, budgets, fits=engine.fits, may_go=may_go)
            if candidate is None:
                continue
            chosen, broken = [victim.uid for victim in candidate.victims], candidate.violations
        accepted[name] = {"Pods": [{"UID": uid} for uid in chosen], "NumPDBViolations": broken}
    return {"NodeNameToMetaVictims": accepted}


def start_binding(engine: Engine, args: BindingArgs, pod: Pod, now: float) -> AttemptOutcome:
    """Reserve and start to bind the pod on the node that the stock scheduler chose.

    Raises LookupError for another pod or node, PermissionError for a pod of a scheduler that does not use the extender.
    """
    if pod.metadata.uid != args.uid:
        raise LookupError(f"pod {args.namespace}/{args.name} is not {args.uid} any more")
    if pod.spec.scheduler_name not in engine.settings.extender_scheduler_names:
        raise PermissionError(f"pods of {pod.spec.scheduler_name} are not bound here")
    return engine.place_on(pod, args.node, now)


def _suffices(engine: Engine, attempt: Attempt, row: int, uids: Iterable[str]) -> bool:
    with engine.snapshot.trial() as trial:
        for uid in uids:
            trial.remove(uid)
        return engine.fits(attempt, row)


def _evaluated(engine: Engine, args: ExtenderArgs, now: float) -> Evaluation:
    """Filter and score the nodes in question: what others could take does not make one of these a last resort."""
    asked = [row for name in args.names if (row := engine.snapshot.row(name)) is not None]
    others = np.delete(np.arange(engine.snapshot.rows_used), asked)
    attempt = engine.cycle.attempt(engine.classes.info(args.pod), now)
    return engine.cycle.evaluate(attempt, prefer=False, excluded=others)


def _total(engine: Engine, evaluation: Evaluation, name: str) -> int:
    row = engine.snapshot.row(name)
    return BARRED if row is None else int(evaluation.totals[row])
