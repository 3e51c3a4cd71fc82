"""Tolerations of a pod against the taints of a node."""

from collections.abc import Iterable, Sequence

from api.kube.objects import Taint, Toleration

HARD_EFFECTS = ("NoSchedule", "NoExecute")
SOFT_EFFECT = "PreferNoSchedule"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether one toleration covers one taint: effect, key and, unless `Exists`, value agree."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator in ("", "Equal") and toleration.value == taint.value


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Return whether any toleration covers the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def first_untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """The first taint that keeps the pod off, None when it may go there."""
    return next((taint for taint in taints if taint.effect in HARD_EFFECTS and not tolerated(taint, tolerations)), None)


def soft_untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> int:
    """Number of PreferNoSchedule taints that the pod does not tolerate.

    As in the stock scheduler, only tolerations without effect or with that very effect count.
    """
    usable = [item for item in tolerations if item.effect in ("", SOFT_EFFECT)]
    return sum(1 for taint in taints if taint.effect == SOFT_EFFECT and not tolerated(taint, usable))
