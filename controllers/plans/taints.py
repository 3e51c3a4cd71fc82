"""Taints that strategies of a node ask for: set while the node's report states them, removed when they are over.

An agent cannot taint its node; it states the wish in its NodeMetric with a time until which it holds, and states it
again in each report. This controller sets and removes only the taints that it owns, which an annotation lists.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from api.crds import NodeMetric
from api.kube.interference import EXTENSION_WANTED_TAINTS, WantedTaint
from api.kube.times import epoch_seconds, rfc3339
from cluster.events import Event
from cluster.resources import Key, Resource
from controllers.capacity.cooldown import LONGEST_SECONDS, wish_end
from controllers.kinds import NODE, NODE_METRIC, Node, NodeTaint
from controllers.runtime.controller import Controller, ControllerSettings
from controllers.runtime.view import View
from controllers.runtime.writes import Write, Writes, kind_name, patch, reference

ANNOTATION_OWNED = "node.koordinator.sh/managed-taints"
"""JSON map of the taints set by this controller, `KEY:EFFECT` to the strategy that asked."""
PREFIX = "node.koordinator.sh/"
"""Keys that a node may ask for: others mean something to Kubernetes or to administrators."""
GRACE_SECONDS = 180.0
"""Time after an outage of the API server in which nodes may state again what they could not meanwhile."""
MOST = 8
"""Taints of one node; what a node states beyond that is left out."""

_Name = tuple[str, str]
"""Key and effect: what identifies a taint."""


class TaintSettings(ControllerSettings, frozen=True, kw_only=True):
    """Table `[controllers.taints]`."""

    effects: tuple[Literal["PreferNoSchedule", "NoSchedule", "NoExecute"], ...] = ("PreferNoSchedule", "NoSchedule")
    """Effects that a node may ask for. NoExecute evicts pods, without a budget."""
    longest_seconds: Annotated[float, msgspec.Meta(gt=0)] = LONGEST_SECONDS
    """A wish holds for this time after the report that states it, whatever end it gives."""


class Taints(Controller[TaintSettings]):
    """Sets and removes the taints that nodes ask for."""

    settings_type = TaintSettings
    watches: ClassVar[tuple[Resource[Any], ...]] = (NODE, NODE_METRIC)
    period_seconds: ClassVar[float] = 10.0

    def plan(self, view: View, now: float) -> Writes:
        """Return the nodes whose taints are to change."""
        nodes, metrics = view.objects(NODE), view.objects(NODE_METRIC)
        writes: list[Write] = []
        warnings: list[Event] = []
        for key in view.due(NODE, NODE_METRIC):
            node, metric = nodes.get(key), metrics.get(key)
            if node is None or (metric is None and ANNOTATION_OWNED not in node.metadata.annotations):
                continue
            # Only what stands may wait for the nodes to be heard again: a wish that is over sets nothing.
            kept = owned_by_us(node.metadata.annotations) if now < view.heard_since_seconds + GRACE_SECONDS else {}
            wanted, refused = wanted_taints(metric, now, self.settings, kept)
            writes += _changes(node, wanted, now)
            warnings += [
                Event(reference(NODE, node), "TaintRefused", problem, "Taint", "Warning") for problem in refused
            ]
        return Writes(writes, warnings)

    def explain(self, view: View, kind: str, key: Key, now: float) -> Sequence[str]:
        """Return the taints that the node asks for, by strategy, and until when."""
        metric = view.objects(NODE_METRIC).get(Key("", key.name))
        if kind != kind_name(NODE) or metric is None:
            return ()
        wanted, refused = wanted_taints(metric, now, self.settings)
        lines = [
            f"taint {taint.key}={taint.value}:{taint.effect} for {taint.strategy} since {taint.since}"
            f" until {taint.until}: {taint.reason}"
            for taint in wanted.values()
        ]
        return [*lines, *refused]


def wanted_taints(
    metric: NodeMetric | None, now: float, settings: TaintSettings, kept: Container[_Name] = ()
) -> tuple[dict[_Name, WantedTaint], list[str]]:
    """Return the taints that a report asks for and that are not over or `kept`, and what is wrong with others."""
    stated = (metric.status.extensions or {}).get(EXTENSION_WANTED_TAINTS) if metric else None
    try:
        listed = msgspec.convert(stated or [], list[WantedTaint])
    except msgspec.ValidationError as error:
        return {}, [f"the node's wanted taints cannot be read: {error}"]
    found: dict[_Name, WantedTaint] = {}
    refused = []
    for taint in listed:
        name = taint.key.removeprefix(PREFIX)
        if not taint.key.startswith(PREFIX) or not _is_name(name) or (taint.value and not _is_name(taint.value)):
            refused.append(f"{taint.key[:80]!r} is no taint that a node may ask for; keys begin with {PREFIX}")
        elif epoch_seconds(taint.until) is None:
            # A wish without an end has no lease: nothing would remove the taint of a node that died.
            refused.append(f"{taint.key} is asked for without an end")
        elif taint.effect not in settings.effects:
            refused.append(f"effect {taint.effect[:40]!r} of {taint.key} is not among {', '.join(settings.effects)}")
        elif len(found) >= MOST:
            refused.append(f"{taint.key} is one taint too many; a node may have {MOST}")
        elif (taint.key, taint.effect) in kept or now < wish_end(taint, metric, now, settings.longest_seconds):
            found[taint.key, taint.effect] = taint
    return found, refused


def _is_name(text: str) -> bool:
    inner = text.replace("-", "").replace(".", "").replace("_", "")
    return 0 < len(text) <= 63 and inner.isascii() and inner.isalnum() and text[0].isalnum() and text[-1].isalnum()


def owned_by_us(annotations: Mapping[str, str]) -> dict[_Name, str]:
    """Return the taints that this controller set on a node, with their strategies."""
    try:
        stated = msgspec.json.decode(annotations.get(ANNOTATION_OWNED, "{}"), type=dict[str, str])
    except (msgspec.DecodeError, RecursionError):
        return {}
    found = {}
    for name, strategy in stated.items():
        key, _, effect = name.rpartition(":")
        found[key, effect] = strategy
    return found


def _changes(node: Node, wanted: Mapping[_Name, WantedTaint], now: float) -> list[Write]:
    owned = owned_by_us(node.metadata.annotations)
    present = {(taint.key, taint.effect): taint for taint in node.spec.taints}
    # A taint with another author is not ours: it is neither changed nor removed.
    ours = {name: taint for name, taint in wanted.items() if name not in present or name in owned}
    kept = [taint for name, taint in present.items() if name not in owned]
    taints = kept + [_taint(wish, present.get(name), now) for name, wish in sorted(ours.items())]
    owners = {f"{key}:{effect}": wish.strategy for (key, effect), wish in sorted(ours.items())}
    stated = {f"{key}:{effect}": strategy for (key, effect), strategy in owned.items()}
    body: dict[str, Any] = {}
    if {(each.key, each.effect): each.value for each in taints} != {name: each.value for name, each in present.items()}:
        body["spec"] = {"taints": [msgspec.to_builtins(taint) for taint in taints]}
    if owners != stated or (not owners and ANNOTATION_OWNED in node.metadata.annotations):
        text = msgspec.json.encode(owners).decode() if owners else None
        body["metadata"] = {"annotations": {ANNOTATION_OWNED: text}}
    if not body:
        return []
    note = _note(ours, owned, present)
    event = Event(reference(NODE, node), "Tainted" if ours.keys() - owned.keys() else "Untainted", note, "Taint")
    return [patch(NODE, node, body, note, event=event if "spec" in body else None)]


def _taint(wish: WantedTaint, before: NodeTaint | None, now: float) -> NodeTaint:
    # The server asks for the time of NoExecute alone: tolerations count from it.
    added = None
    if wish.effect == "NoExecute":
        added = before.time_added if before is not None and before.time_added else rfc3339(now)
    return NodeTaint(key=wish.key, value=wish.value, effect=wish.effect, time_added=added)


def _note(ours: Mapping[_Name, WantedTaint], owned: Mapping[_Name, str], present: Mapping[_Name, NodeTaint]) -> str:
    set_now = [
        f"set {key}:{effect} for {ours[key, effect].strategy}: {ours[key, effect].reason}"
        for key, effect in sorted(ours.keys() - owned.keys())
    ]
    removed = [
        f"removed {key}:{effect} of {owned[key, effect]}: it is not asked for any more"
        for key, effect in sorted(owned.keys() - ours.keys())
    ]
    restored = [
        f"set {key}:{effect} again"
        for key, effect in sorted(ours.keys() & owned.keys())
        if (key, effect) not in present or present[key, effect].value != ours[key, effect].value
    ]
    return "; ".join([*set_now, *removed, *restored]) or "corrected the list of managed taints"
