"""Rules: symptoms, thresholds, selection of workloads, times to open and close a verdict. Text in, values out."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any

import msgspec

from api.frame import CgroupInfo
from api.qos import QoSClass
from api.settings import SettingsError, convert, parse
from detector.hysteresis import USUAL, USUAL_CLOSE_RATIO

Loss = Annotated[float, msgspec.Meta(gt=0)]


class Selector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Workloads a rule is about; empty lists select all."""

    paths: tuple[str, ...] = ()
    """Shell patterns of cgroup paths."""
    qos: tuple[QoSClass, ...] = ()

    def matches(self, info: CgroupInfo) -> bool:
        """Return whether the rule is about this cgroup."""
        by_path = not self.paths or any(fnmatchcase(info.path, pattern) for pattern in self.paths)
        return by_path and (not self.qos or info.qos in self.qos)


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of the settings; the verdict speaks of the symptom that costs the victim most."""

    name: str = ""
    all_of: tuple[str, ...] = ()
    """Symptoms that must all exceed the threshold."""
    any_of: tuple[str, ...] = ()
    """Symptoms of which one must exceed it."""
    unless_measured: tuple[str, ...] = ()
    """The rule is superseded on hosts that measure any of these symptoms, which see more."""
    threshold: Loss = 0.05
    """Lost seconds per second from which a symptom holds."""
    qos_thresholds: dict[QoSClass, Loss] = {}
    """Thresholds of single QoS classes."""
    progress_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """The threshold is at least this part of the CPU time that the cgroup uses: a service that runs on sixteen CPUs
    waits some milliseconds each second though all is well."""
    least_ratio: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    """Of a cgroup that uses less than a twentieth of a CPU, and waits ten times and more in a tick, the threshold is
    smaller in proportion, down to this part: 0.04 s/s are twice the work of a service that uses 0.02 CPUs. It is at
    least 50 us for each of its waits, up to twice the rule's own, and where it has fallen an early tick of less than
    0.9 s must show as much lost time as that, or reach the threshold itself. By a rule with such a part, a cgroup that
    wanted no CPU just before the ticks in which it holds needs one more of them."""
    selector: Selector = Selector()
    ticks: Annotated[int, msgspec.Meta(ge=1)] = USUAL.ticks
    """The rule must hold in this many ..."""
    of_ticks: Annotated[int, msgspec.Meta(ge=1, le=60)] = USUAL.of_ticks
    """... of this many ticks."""
    at_once_ratio: Annotated[float, msgspec.Meta(ge=1)] = 8.0
    """One tick is enough for a loss of this many thresholds, if most of it was seen directly to be another's doing."""
    close_ratio: Annotated[float, msgspec.Meta(gt=0, le=1)] = USUAL_CLOSE_RATIO
    """A verdict closes when the loss stays below this part of the threshold for `hold_seconds`; with a
    `least_ratio`, and of a cgroup that uses little CPU time, also while it is below 50 us for each wait."""
    hold_seconds: Annotated[float, msgspec.Meta(ge=0, le=3600)] = USUAL.hold_seconds
    """Doubled each time a verdict comes back soon after it closed, up to a minute, so that pulses make one verdict."""
    cooldown_seconds: Annotated[float, msgspec.Meta(ge=0)] = USUAL.cooldown_seconds
    """Time after a verdict closed in which the rule opens none for the same victim; delays verdicts that come back."""

    @property
    def symptoms(self) -> tuple[str, ...]:
        """All symptoms that it composes."""
        return tuple(dict.fromkeys((*self.all_of, *self.any_of)))

    def threshold_of(self, info: CgroupInfo) -> float:
        """Loss from which a symptom holds for this cgroup; infinite where the rule is not about it."""
        if not self.selector.matches(info):
            return float("inf")
        known = {str(qos): loss for qos, loss in self.qos_thresholds.items()}
        return known.get(info.qos, self.threshold)


class SuspicionPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Easing of thresholds for a cgroup that its anomaly model suspects, in rules whose symptoms are measured.

    The loss itself must still be seen: a model alone opens nothing, and it confirms no estimate.
    """

    threshold_ratio: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5
    """Part of the threshold that suffices."""
    ticks: Annotated[int, msgspec.Meta(ge=1)] = 1
    """Ticks that suffice."""


NOT_BEST_EFFORT = Selector(qos=tuple(qos for qos in QoSClass if qos is not QoSClass.BE))
"""All but best-effort work, which is meant to wait until no other work wants the CPU."""
BEST_EFFORT_THRESHOLDS: dict[QoSClass, float] = {QoSClass.BE: 0.5}
"""Best-effort work may lose half a thread before there is a verdict."""

UNUSUAL_TICKS, UNUSUAL_OF_TICKS = 4, 5
"""Ticks in which a rule on a signal's usual values must hold. One ordinary tick in a hundred lies above all others,
however heavy the tail; two of three such ticks come 26 times a day, four of five twice a year."""

COMPOSITIONS: tuple[Rule, ...] = (
    Rule(
        name="cache",
        any_of=("memory_bandwidth", "cache_pressure"),
        threshold=0.1,
        qos_thresholds=BEST_EFFORT_THRESHOLDS,
        ticks=UNUSUAL_TICKS,
        of_ticks=UNUSUAL_OF_TICKS,
    ),
    Rule(name="cpu-quota", any_of=("own_quota", "ancestor_quota"), qos_thresholds=BEST_EFFORT_THRESHOLDS),
    Rule(name="memory", any_of=("reclaim", "compaction"), qos_thresholds=BEST_EFFORT_THRESHOLDS),
    Rule(
        name="memory-limit",
        any_of=("own_memory_limit", "ancestor_memory_limit", "ancestor_limit_refault"),
        qos_thresholds=BEST_EFFORT_THRESHOLDS,
    ),
)
"""Default rules over several symptoms; every other default rule is its symptom's own (`Symptom.default_rule`)."""


def load_rules(text: str, source: str, symptoms: frozenset[str]) -> tuple[Rule, ...]:
    """Rules of a TOML or YAML text, tables `[rules.<name>]`; `symptoms` are the names that may be composed.

    Raises SettingsError naming rule and key.
    """
    document = parse(text, source)
    unknown = sorted(set(document) - {"rules"})
    if unknown:
        raise SettingsError(source, unknown[0], "unknown key; rules stand under [rules.<name>]")
    tables = document.get("rules", {})
    if not isinstance(tables, dict):
        raise SettingsError(source, "rules", "must be a table of rules")
    return rules_of(tables, source, symptoms)


def rules_of(tables: Mapping[str, Any], source: str, symptoms: frozenset[str]) -> tuple[Rule, ...]:
    """Rules of tables by name, as a settings file has them. Raises SettingsError naming rule and key."""
    return tuple(_rule(name, table, source, symptoms) for name, table in tables.items())


def _rule(name: str, table: Any, source: str, symptoms: frozenset[str]) -> Rule:
    where = f"{source}: rule {name}"
    if not isinstance(table, dict):
        raise SettingsError(where, "", "must be a table")
    if "name" in table:
        raise SettingsError(where, "name", "the table's own name is the rule's name")
    rule = msgspec.structs.replace(convert(table, Rule, where), name=name)
    check_rule(rule, source, symptoms)
    return rule


def check_rule(rule: Rule, source: str, symptoms: frozenset[str]) -> None:
    """Raise SettingsError naming rule and key where the rule can never be met or names an unknown symptom."""
    where = f"{source}: rule {rule.name}"
    convert(msgspec.to_builtins(rule), Rule, where)
    if not rule.symptoms:
        raise SettingsError(where, "any_of", "a rule needs a symptom in all_of or any_of")
    if rule.ticks > rule.of_ticks:
        raise SettingsError(where, "ticks", f"{rule.ticks} of {rule.of_ticks} ticks can never hold")
    for key in ("all_of", "any_of", "unless_measured"):
        for symptom in getattr(rule, key):
            if symptom not in symptoms:
                raise SettingsError(where, key, f"no symptom {symptom!r}; there are {', '.join(sorted(symptoms))}")
