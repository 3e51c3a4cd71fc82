"""interference.koordinator.sh: what the agents of a cluster judge by.

An InterferenceDetectionRule holds what a table `[rules.<name>]` of an agent's settings holds, under the object's name.
The schema refuses what no agent could use as far as it can tell; which symptoms there are, only the agent knows.
"""

from typing import Annotated

import msgspec

from api.crds.definition import Column, Definition, among, between
from api.kube.meta import ObjectMeta, Wire
from api.qos import QoSClass

_ABOVE_ZERO = msgspec.Meta(
    extra_json_schema={
        "minimum": 0,
        "x-kubernetes-validations": [{"rule": "self > 0.0", "message": "must be above zero"}],
    }
)
_PART = msgspec.Meta(
    extra_json_schema={
        "minimum": 0,
        "maximum": 1,
        "x-kubernetes-validations": [{"rule": "self > 0.0", "message": "must be above zero"}],
    }
)
_COHERENT = msgspec.Meta(
    extra_json_schema={
        "x-kubernetes-validations": [
            {
                "rule": "(has(self.allOf) && size(self.allOf) > 0) || (has(self.anyOf) && size(self.anyOf) > 0)",
                "message": "a rule needs a symptom in allOf or anyOf",
            },
            {
                "rule": "(has(self.ticks) ? self.ticks : 2) <= (has(self.ofTicks) ? self.ofTicks : 3)",
                "message": "ticks of ofTicks can never hold",
            },
        ]
    }
)
_CLASSES = among(*(str(qos) for qos in QoSClass))
_BY_CLASS = msgspec.Meta(
    extra_json_schema={
        "maxProperties": len(QoSClass),
        "x-kubernetes-validations": [
            {"rule": f"self.all(key, key in {[str(qos) for qos in QoSClass]})", "message": "keys are QoS classes"}
        ],
    }
)


class InterferenceSelector(Wire, frozen=True, kw_only=True):
    """Workloads a rule is about; empty lists select all. `paths` are shell patterns of cgroup paths."""

    paths: list[str] = []
    qos: list[Annotated[str, _CLASSES]] = []


class InterferenceDetectionRuleSpec(Wire, frozen=True, kw_only=True):
    """Absent fields take the agent's defaults; losses are lost seconds per second."""

    all_of: list[str] | None = None
    """Symptoms that must all exceed the threshold."""
    any_of: list[str] | None = None
    """Symptoms of which one must exceed it."""
    unless_measured: list[str] | None = None
    """The rule rests on nodes that measure any of these symptoms, which see more."""
    threshold: Annotated[float, _ABOVE_ZERO] | None = None
    qos_thresholds: Annotated[dict[str, Annotated[float, _ABOVE_ZERO]], _BY_CLASS] | None = None
    """Thresholds of single QoS classes."""
    progress_ratio: Annotated[float, between(0, 1)] | None = None
    """The threshold is at least this part of the CPU time that the cgroup uses."""
    least_ratio: Annotated[float, _PART] | None = None
    """Of a cgroup that uses less than a twentieth of a CPU, and waits ten times and more in a tick, the threshold is
    smaller in proportion, to this part, but no less than 50 us for each wait."""
    selector: InterferenceSelector | None = None
    ticks: Annotated[int, between(1)] | None = None
    """The rule must hold in so many of `of_ticks` ticks."""
    of_ticks: Annotated[int, between(1, 60)] | None = None
    at_once_ratio: Annotated[float, between(1)] | None = None
    """One tick is enough for a loss of this many thresholds, if most of it was measured to be another cgroup's."""
    close_ratio: Annotated[float, _PART] | None = None
    """A verdict closes when the loss stays below this part of the threshold for `hold_seconds`."""
    hold_seconds: Annotated[float, between(0, 3600)] | None = None
    cooldown_seconds: Annotated[float, between(0)] | None = None


class InterferenceDetectionRule(Wire, frozen=True, kw_only=True):
    """A rule that every agent of the cluster judges by."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[InterferenceDetectionRuleSpec, _COHERENT]


INTERFERENCE_DETECTION_RULE = Definition(
    "InterferenceDetectionRule",
    "interferencedetectionrules",
    "interference.koordinator.sh",
    InterferenceDetectionRule,
    status=False,
    short_names=("idr",),
    columns=(
        Column("Any of", ".spec.anyOf"),
        Column("All of", ".spec.allOf"),
        Column("Threshold", ".spec.threshold", "number"),
    ),
)
