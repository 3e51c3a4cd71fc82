"""What the control loop tells the cluster: taints that strategies want, and actions on cgroups. No I/O.

A taint is nothing that a node can set itself: it travels in the NodeMetric to koord-manager. Here it is wanted, renewed
and dropped as every other setting: while it is requested, and until its lease ends where its strategy is silent.
"""

import threading
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from api.intents import Intent, Knob, Setting
from api.kube.interference import WantedTaint
from api.kube.times import rfc3339
from api.pod_actions import PodAction
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import EnforcerEvent, of_intent

MAX_ACTIONS = 1000
"""Actions kept until they are reported; older ones are dropped and counted."""
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TRAVELS = "travels to the manager in the NodeMetric"
LIMITS = frozenset(
    {
        Knob.CPU_IDLE,
        Knob.CPU_WEIGHT,
        Knob.CPU_MAX,
        Knob.CPUSET_CPUS,
        Knob.FREEZE,
        Knob.MEMORY_HIGH,
        Knob.MEMORY_MAX,
        Knob.IO_WEIGHT,
        Knob.IO_MAX,
        Knob.NET_CLASS,
        Knob.NET_INGRESS,
        Knob.RESCTRL_GROUP,
    }
)
"""Knobs that limit a pod when they are made smaller."""


@dataclass(frozen=True, slots=True)
class _Lease:
    taint: WantedTaint
    ends_seconds: float


_Key = tuple[str, str, str]
"""Strategy, target and knob."""


class ControlReports:
    """Taints and actions of one agent; the control loop writes, the cluster's sink reads."""

    def __init__(self, strategies: Collection[str] = ("*",)) -> None:
        """`strategies` are globs of those that may act; the taints of others are left to the enforcer."""
        self.dropped = 0
        """Actions that were never reported."""
        self._strategies = tuple(strategies)
        self._lock = threading.Lock()
        self._leases: dict[str, _Lease] = {}
        self._actions: deque[PodAction] = deque(maxlen=MAX_ACTIONS)
        self._limited: dict[_Key, None] = {}
        """Limits that were reported as begun, oldest first."""

    def taints(self) -> tuple[WantedTaint, ...]:
        """Return the taints wanted now, by key."""
        with self._lock:
            return tuple(self._leases[key].taint for key in sorted(self._leases))

    def drain(self) -> Sequence[PodAction]:
        """Return the actions since the last call."""
        with self._lock:
            actions = tuple(self._actions)
            self._actions.clear()
        return actions

    def take_taints(
        self, intents: Iterable[Intent], silent: Collection[str], now_seconds: float, wall_seconds: float
    ) -> tuple[list[Intent], list[EnforcerEvent]]:
        """Take the taints out of a step's complete intents; return the other intents, and an event for each taint.

        Of two strategies that want one key, the stronger wins, then the first by name. `now_seconds` is monotonic.
        """
        rest: list[Intent] = []
        asked: dict[str, Setting] = {}
        events = []
        for intent in intents:
            if not self._is_taint(intent):
                rest.append(intent)
                continue
            assert isinstance(intent, Setting)
            fault = _fault(intent)
            if fault:
                events.append(of_intent(intent, Outcome.REFUSED, fault))
                continue
            other = asked.get(intent.target)
            if other is None or (-intent.strength, intent.strategy) < (-other.strength, other.strategy):
                asked[intent.target], other = intent, other
                events += [of_intent(other, Outcome.CONFLICT, f"{intent.strategy} wants another")] if other else []
            else:
                events.append(of_intent(intent, Outcome.CONFLICT, f"{other.strategy} wants another"))
        events += [of_intent(setting, Outcome.UNCHANGED, TRAVELS) for setting in asked.values()]
        with self._lock:
            self._leases = {
                key: lease
                for key, lease in self._leases.items()
                if key in asked or (lease.taint.strategy in silent and now_seconds < lease.ends_seconds)
            }
            for key, setting in asked.items():
                self._leases[key] = self._lease(setting, self._leases.get(key), now_seconds, wall_seconds)
        return rest, events

    def note(self, events: Iterable[EnforcerEvent], requested: Iterable[Intent], wall_seconds: float) -> None:
        """Note the limits that began and ended by the enforcer's events of a step.

        State that the protocol gives a pod is no limit, nor is a setting that gives it more. Evictions have Events of
        their own.
        """
        protocol = {
            (intent.strategy, intent.target, intent.knob.value)
            for intent in requested
            if isinstance(intent, Setting) and intent.protocol_state
        }
        with self._lock:
            for event in events:
                key = (event.strategy, event.target, event.knob)
                ended = event.outcome is Outcome.RESTORED and key in self._limited
                if event.outcome is Outcome.SET and key not in protocol and _limits(event):
                    self._limited[key] = None
                    if len(self._limited) > MAX_ACTIONS:
                        self._limited.pop(next(iter(self._limited)))
                elif ended:
                    del self._limited[key]
                elif event.outcome is not Outcome.RECLAIMED:
                    continue
                self.dropped += len(self._actions) == MAX_ACTIONS
                what = event.knob if ended or not event.after else f"{event.knob} {event.after}"
                self._actions.append(
                    PodAction(event.target, what, event.strategy, event.reason, wall_seconds, event.verdict, ended)
                )

    def _is_taint(self, intent: Intent) -> bool:
        if not isinstance(intent, Setting) or intent.knob is not Knob.NODE_TAINT:
            return False
        return any(fnmatchcase(intent.strategy, pattern) for pattern in self._strategies)

    @staticmethod
    def _lease(setting: Setting, before: _Lease | None, now_seconds: float, wall_seconds: float) -> _Lease:
        value, _, effect = setting.value.rpartition(":")
        known = before.taint if before is not None else None
        same = known is not None and (known.value, known.effect, known.strategy) == (value, effect, setting.strategy)
        taint = WantedTaint(
            key=setting.target,
            value=value,
            effect=effect,
            strategy=setting.strategy,
            reason=setting.reason,
            since=known.since if known is not None and same else rfc3339(wall_seconds),
        )
        return _Lease(taint, now_seconds + setting.lease_seconds)


def _fault(setting: Setting) -> str:
    """Return what is wrong with a taint; empty for none."""
    if not setting.target:
        return "a taint needs a key"
    effect = setting.value.rpartition(":")[2]
    return "" if effect in EFFECTS else f"{effect!r} is no effect of a taint; there are {', '.join(EFFECTS)}"


def _limits(event: EnforcerEvent) -> bool:
    """Return whether an event made a limit tighter; where its values cannot be compared it counts as one."""
    if event.knob not in LIMITS:
        return False
    try:
        before, after = _number(event.before), _number(event.after)
    except ValueError:
        return True
    tightens = after > before if event.knob in (Knob.CPU_IDLE, Knob.FREEZE) else after < before
    return tightens or before == after


def _number(value: str) -> float:
    """Return the first word as a number, no limit as infinity. Raises ValueError for any other text."""
    first = value.split()[0] if value.split() else ""
    return float("inf") if first in ("max", "-1") else float(first)
