"""Taints of a node that a pod does not tolerate."""

from collections.abc import Iterable, Sequence

from api.kube.objects import Taint, Toleration
from api.kube.taints import HARD_EFFECTS, tolerated

SOFT_EFFECT = "PreferNoSchedule"


def first_untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """The first taint that keeps the pod off, None when it may go there."""
    return next((taint for taint in taints if taint.effect in HARD_EFFECTS and not tolerated(taint, tolerations)), None)


def soft_untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> int:
    """Number of PreferNoSchedule taints that the pod does not tolerate.

    As in the stock scheduler, only tolerations without effect or with that very effect count.
    """
    usable = [item for item in tolerations if item.effect in ("", SOFT_EFFECT)]
    return sum(1 for taint in taints if taint.effect == SOFT_EFFECT and not tolerated(taint, usable))
