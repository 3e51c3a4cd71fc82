"""The order in which pods of a node are moved: the cheapest first."""

from collections.abc import Callable, Iterable, Mapping

from api.kube.objects import Pod
from api.kube.resources import Resources
from api.kube.times import epoch_seconds
from api.protocol import ANNOTATION_EVICTION_COST
from api.qos import PriorityBand, QoSClass
from cluster.resources import Key
from controllers.descheduler.cluster_view import band_of, qos_of

ANNOTATION_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
COST_LIMIT = 2**31 - 1
"""Eviction cost of a pod that is never moved."""
_BANDS = (PriorityBand.FREE, PriorityBand.BATCH, PriorityBand.MID, PriorityBand.PROD, PriorityBand.NONE)
_KUBE_CLASSES = ("BestEffort", "Burstable", "Guaranteed")
_CLASSES = {QoSClass.BE: 0, QoSClass.LS: 1, QoSClass.LSR: 2, QoSClass.LSE: 3, QoSClass.SYSTEM: 3, QoSClass.NONE: 4}


def cost(pod: Pod, annotation: str) -> int:
    """Return the cost that an annotation states; 0 for none or one that is no 32-bit number."""
    text = pod.metadata.annotations.get(annotation, "")
    digits = text.removeprefix("-")
    if not digits.isdecimal() or not digits.isascii() or len(digits) > 10:
        return 0
    return max(-COST_LIMIT - 1, min(COST_LIMIT, int(text)))


def rank(pod: Pod) -> tuple[float, ...]:
    """Return the first six levels of the order; lower is moved first."""
    kube = pod.status.qos_class
    return (
        _BANDS.index(band_of(pod)),
        pod.spec.priority or 0,
        _KUBE_CLASSES.index(kube) if kube in _KUBE_CLASSES else 1,
        _CLASSES[qos_of(pod)],
        cost(pod, ANNOTATION_DELETION_COST),
        cost(pod, ANNOTATION_EVICTION_COST),
    )


def in_order(
    pods: Iterable[Pod],
    usage: Mapping[Key, Resources] | None = None,
    excess: Mapping[str, int] | None = None,
    weights: Mapping[str, int] | None = None,
    moves_of: Callable[[Pod], int] = lambda _: 0,
) -> list[Pod]:
    """Return pods, the one to move first at the head.

    By rank, fewest moves of its workload lately, how well it covers the excess, newest first. `excess` is what a node
    uses above its thresholds by resource.
    """

    def key(pod: Pod) -> tuple[object, ...]:
        used = (usage or {}).get(Key(pod.metadata.namespace, pod.metadata.name))
        score = covering(used, excess or {}, weights or {})
        return (
            *rank(pod),
            moves_of(pod),
            -score,
            -(epoch_seconds(pod.metadata.creation_timestamp) or 0.0),
            pod.metadata.uid,
        )

    return sorted(pods, key=key)


def covering(used: Mapping[str, int] | None, excess: Mapping[str, int], weights: Mapping[str, int]) -> float:
    """Return how well a pod's usage covers an excess: best where it just does; -1 for a pod without usage.

    Source: Koordinator's LowNodeLoad: x = usage / excess counts x below 1, else 1 + 1 / x.
    """
    if used is None:
        return -1.0
    parts = []
    for name, over in excess.items():
        if over <= 0:
            continue
        share = used.get(name, 0) / over
        parts.append((share if share < 1 else 1 + 1 / share, weights.get(name, 1)))
    whole = sum(weight for _, weight in parts)
    return sum(value * weight for value, weight in parts) / whole if whole else 0.0
