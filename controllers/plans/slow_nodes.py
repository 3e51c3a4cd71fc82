"""Slow nodes: an annotation with their slowness against the fleet, and an Event. Overcommit and scheduler read it."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec

from api.protocol import ANNOTATION_SLOW_RATIO
from cluster.events import Event
from cluster.resources import Key, Resource
from controllers.kinds import NODE, Node
from controllers.profiles.observations import Observations
from controllers.profiles.slow_nodes import FRESH_SECONDS, Slowness
from controllers.runtime.controller import Controller, ControllerSettings
from controllers.runtime.view import AnyProjection, View
from controllers.runtime.writes import Write, Writes, kind_name, patch, reference

STEP = 0.05
"""Difference of a ratio from which it is written anew."""
_NO_SLOWER = "its workloads are no slower than elsewhere"
_TOO_MANY = "more nodes are slow than may be marked"


class SlowNodeSettings(ControllerSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of SlowNodes."""

    enabled: bool = False
    """Mark slow nodes; they sell less and are chosen last."""
    most_part: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.1
    """Of the nodes that may be marked, those already marked first: when more are slow, it is the fleet that changed."""


class SlowNodes(Controller[SlowNodeSettings]):
    """Annotates nodes that are slower than the fleet for most of their workloads."""

    settings_type = SlowNodeSettings
    watches: ClassVar[tuple[Resource[Any], ...]] = (NODE,)
    projections: ClassVar[tuple[type[AnyProjection], ...]] = (Observations,)
    period_seconds: ClassVar[float] = 600.0

    def plan(self, view: View, now: float) -> Writes:
        """Return the nodes that became slow, are slow by another ratio, or are so no longer; in a full plan."""
        if not view.full:
            return Writes()
        nodes = view.objects(NODE)
        shifts = view.of(Observations).usual.shifts
        found = shifts.found(now)
        # Marked ones first: two nodes of like ratios would take the last place from each other in turn.
        slow = [
            (ANNOTATION_SLOW_RATIO in node.metadata.annotations, found[key.name].ratio, key)
            for key, node in nodes.items()
            if key.name in found and _is_slow(node, found[key.name])
        ]
        room = max(int(self.settings.most_part * len(nodes)), 1)
        chosen = {key for _, _, key in sorted(slow, reverse=True)[:room]}
        writes: list[Write] = []
        for key, node in sorted(nodes.items()):
            stated = node.metadata.annotations.get(ANNOTATION_SLOW_RATIO)
            if key in chosen:
                writes += _marked(node, stated, found[key.name])
            elif stated is not None and key.name in found:
                slower = _is_slow(node, found[key.name])
                writes.append(_annotate(node, None, _TOO_MANY if slower else _NO_SLOWER))
            elif stated is not None and shifts.unknown_seconds(key.name, now) > FRESH_SECONDS:
                writes.append(_annotate(node, None, "nothing was told of its slowness for a day"))
        return Writes(writes)

    def explain(self, view: View, kind: str, key: Key, now: float) -> Sequence[str]:
        """Return how the node's workloads compare with the fleet."""
        each = view.of(Observations).usual.shifts.found(now).get(key.name)
        if kind != kind_name(NODE) or each is None:
            return ()
        return [_sentence(each)]


def _is_slow(node: Node, each: Slowness) -> bool:
    return each.goes_on if ANNOTATION_SLOW_RATIO in node.metadata.annotations else each.begins


def _marked(node: Node, stated: str | None, each: Slowness) -> list[Write]:
    try:
        before = float(stated or "nan")
    except ValueError:
        before = float("nan")
    if abs(before - each.ratio) < STEP:
        return []
    event = Event(reference(NODE, node), "SlowNode", _sentence(each), "CompareNode", "Warning")
    return [_annotate(node, f"{each.ratio:.2f}", _sentence(each), event)]


def _annotate(node: Node, text: str | None, reason: str, event: Event | None = None) -> Write:
    return patch(NODE, node, {"metadata": {"annotations": {ANNOTATION_SLOW_RATIO: text}}}, reason, event=event)


def _sentence(each: Slowness) -> str:
    worst = ", ".join(f"{name} by {100 * (ratio - 1):.0f} %" for name, ratio in each.worst)
    return (
        f"{each.slower} of {each.workloads} workloads are slower here than in the fleet, the median by"
        f" {100 * (each.ratio - 1):.0f} %; most: {worst}"
    )
