"""Tolerations of a pod against the taints of a node."""

from collections.abc import Iterable

from api.kube.objects import Taint, Toleration

HARD_EFFECTS = ("NoSchedule", "NoExecute")
"""Effects that keep a pod off a node."""


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
