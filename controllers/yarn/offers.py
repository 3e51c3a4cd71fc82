"""How much of a node's batch resources YARN is offered, and how much is withheld from pods for it. Pure.

Batch resources before third parties are the *origin*; pods and YARN's containers draw on it. In the mode `split` the
free rest is divided, and two rules keep every share sold once: YARN is offered more only after what pods are offered
was lowered by it, and pods get back only what the ResourceManager no longer offers. Pods that are placed have
precedence: where the origin shrinks below both, the offer falls below what containers hold.
"""

from dataclasses import dataclass

from controllers.capacity.pods import Amounts
from controllers.yarn.protocol import MIB, NOTHING, Capability, NodeReport, NodeState, amounts_of, at_most
from controllers.yarn.settings import SharingSettings

ZERO: Amounts = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchState:
    """Batch resources of a node as the cluster states them, in millicores and bytes."""

    origin: Amounts
    """Before third parties."""
    for_pods: Amounts
    """Allocatable for pods at present."""
    asked: Amounts
    """Requests of the pods that are placed there."""
    held: Amounts
    """Withheld for YARN at present, by the node's annotation."""
    lingering: Amounts
    """Held by containers of a NodeManager that is not running, as far as is known."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the ResourceManager and the cluster are to be told."""

    offer: Capability | None
    """Resource of the NodeManager; None leaves it."""
    held: Amounts
    """What is withheld from pods."""
    reason: str


def decide(batch: BatchState, report: NodeReport | None, sharing: SharingSettings) -> Decision:
    """Return the decision for a node whose ResourceManager answers; `report` is None where it knows no such node."""
    if report is None:
        return Decision(None, batch.lingering, "the ResourceManager does not know the NodeManager")
    scale = sharing.millicores_per_vcore
    used = amounts_of(report.used, scale)
    if report.state == NodeState.UNHEALTHY:
        # Its containers are ended by the ResourceManager and may still run.
        held = _larger(_larger(used, _smaller(amounts_of(report.total, scale), batch.origin)), batch.lingering)
        return Decision(NOTHING, held, f"the NodeManager is unhealthy: {report.health or 'no reason given'}")
    if report.state == NodeState.DECOMMISSIONING:
        return Decision(None, _larger(used, batch.lingering), "the NodeManager is being decommissioned")
    if report.state != NodeState.RUNNING:
        return Decision(None, batch.lingering, f"the NodeManager is {report.state or 'in no known state'}")
    most = _less(_percent(batch.origin, sharing.max_percent), ZERO)
    left = _smaller(_less(batch.origin, batch.asked), most)
    if sharing.mode == "first-come":
        return Decision(at_most(left, scale), used, _sentence(batch, report, left, "all that pods left"))
    return _split(batch, report, sharing, left)


def _split(batch: BatchState, report: NodeReport, sharing: SharingSettings, left: Amounts) -> Decision:
    scale = sharing.millicores_per_vcore
    used, total = amounts_of(report.used, scale), amounts_of(report.total, scale)
    share = _percent(_less(left, used), sharing.free_percent)
    wanted = _smaller((used[0] + share[0], used[1] + share[1]), left)
    step = _percent(batch.origin, sharing.step_percent)
    kept = tuple(
        now if now <= most and abs(now - want) < grain else want
        for now, most, want, grain in zip(total, left, wanted, step, strict=True)
    )
    goal = at_most((kept[0], kept[1]), scale)
    # What pods may no longer take: the rest of the origin may be taken by a pod at any moment.
    withdrawn = at_most(_less(batch.origin, _larger(batch.for_pods, batch.asked)), scale)
    offer = Capability(
        _raised(report.total.vcores, goal.vcores, withdrawn.vcores), _raised(report.total.mib, goal.mib, withdrawn.mib)
    )
    held = _larger(_larger(amounts_of(goal, scale), _smaller(total, batch.origin)), used)
    return Decision(offer, held, _sentence(batch, report, left, f"{sharing.free_percent} percent of what is free"))


def _raised(now: int, goal: int, withdrawn: int) -> int:
    """Return the next offer: lowered at once, raised only into what was withdrawn from pods."""
    return goal if goal <= now else max(now, min(goal, withdrawn))


def _sentence(batch: BatchState, report: NodeReport, left: Amounts, share: str) -> str:
    return (
        f"of {batch.origin[0]} millicores and {batch.origin[1]} bytes pods ask for {batch.asked[0]} and "
        f"{batch.asked[1]}, containers hold {report.used}; YARN gets {share}"
        + (", less memory than its containers hold" if report.used.mib * MIB > left[1] else "")
    )


def _percent(amounts: Amounts, percent: int) -> Amounts:
    return amounts[0] * percent // 100, amounts[1] * percent // 100


def _less(amounts: Amounts, other: Amounts) -> Amounts:
    return max(amounts[0] - other[0], 0), max(amounts[1] - other[1], 0)


def _larger(one: Amounts, other: Amounts) -> Amounts:
    return max(one[0], other[0]), max(one[1], other[1])


def _smaller(one: Amounts, other: Amounts) -> Amounts:
    return min(one[0], other[0]), min(one[1], other[1])
