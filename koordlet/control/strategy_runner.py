"""The strategies of a running agent: enabled by a NodeSLO, asked each tick; a failing one costs only its intents."""

import logging
import time
from collections import Counter
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any

from api.intents import Intent, Setting
from api.kube.resources import QuantityError, parse_quantity
from api.qos import QoSClass
from api.settings import SettingsError, parse
from koordlet.config import StrategiesSettings
from koordlet.strategies.settings import configure
from koordlet.strategies.strategy import Strategy, make_strategies
from koordlet.strategies.view import NodeView

_log = logging.getLogger(__name__)

_EVICTIONS_SECONDS = 3600.0
"""Age up to which evictions are in the view of the strategies."""
_REFUSALS_SECONDS = 30.0
"""Time for which a pod whose eviction was refused is not chosen again."""
ANSWER_SECONDS = 5.0
"""Time for which protocol state waits for the cluster's answer at the start, from the first tick on."""


class StrategyRunner:
    """The enabled strategies and their counters."""

    def __init__(
        self,
        strategies: Mapping[str, Strategy[Any]],
        spec: Mapping[str, Any] | None = None,
        features: Mapping[str, bool] | None = None,
    ) -> None:
        """`spec` is the NodeSLO of the settings, which holds where the cluster has none; `features` are gates."""
        self.strategies = dict(strategies)
        self.is_asked = True
        """False while no spec enables any: the node's view is not made then."""
        self._spec = dict(spec or {})
        self._features = dict(features or {})
        self._follows_settings = True
        self._network_bits = _network_bits(self._spec, "")[0]
        self.runs = 0
        """Ticks in which the strategies were asked."""
        self.run_seconds = dict.fromkeys(self.strategies, 0.0)
        self.failures: Counter[str] = Counter()
        self.problems: dict[str, int] = {}
        """Number of settings that each could not follow in the last tick."""
        self.silent: frozenset[str] = frozenset()
        """Strategies that could not decide in the last tick: their settings stay in effect until the lease ends."""
        self.evictions: dict[str, float] = {}
        """Path to the monotonic time at which each recent eviction began."""
        self.asked: frozenset[str] = frozenset()
        """Paths whose eviction is asked for and not answered yet."""
        self.refusals: dict[str, float] = {}
        """Path to the monotonic time of each recent refusal of an eviction."""
        self._failing: set[str] = set()
        self._awaits_answer = False
        """Whether the cluster has yet to say what the node's NodeSLO is, and is waited for."""
        self._asked_since: float | None = None

    def await_answer(self) -> None:
        """Ask for no protocol state before the cluster has said what the node's NodeSLO is; for a while at most.

        What another spec would have set in the meantime would be written, and taken back a tick later.
        """
        self._awaits_answer = True

    def answered(self) -> None:
        """The cluster has said what the node's NodeSLO is, or that there is none."""
        self._awaits_answer = False

    def may_ask(self, now: float) -> bool:
        """Return whether protocol state may be asked for; `now` is monotonic seconds."""
        if not self._awaits_answer:
            return True
        if self._asked_since is None:
            self._asked_since = now
        if now - self._asked_since < ANSWER_SECONDS:
            return False
        _log.warning("no NodeSLO was heard of in %.0f s; going on with what is known", ANSWER_SECONDS)
        self._awaits_answer = False
        return True

    @property
    def needs_memory_domains(self) -> bool:
        """True where a strategy needs the view's memory domains."""
        return any(strategy.needs_memory_domains for strategy in self.strategies.values())

    def limited_classes(self, name: str) -> frozenset[QoSClass]:
        """Return the classes that a strategy's settings let it limit; those of one that does not run are none."""
        strategy = self.strategies.get(name)
        return strategy.limited_classes if strategy is not None else frozenset()

    @property
    def network_bits_per_second(self) -> int:
        """Speed of the node's link as `systemStrategy.totalNetworkBandwidth` of the NodeSLO states it; 0 if it does
        not."""
        return self._network_bits

    def follow(self, spec: Mapping[str, Any] | None, source: str) -> list[SettingsError]:
        """Follow another NodeSLO's spec from the next tick on, None that of the settings; return what was refused.

        A strategy whose settings changed is made anew; the others keep what they remember. One whose settings are
        refused keeps those that it has.
        """
        followed = self._spec if spec is None else spec
        candidates = {name: copy(strategy) for name, strategy in self.strategies.items()}
        refused = configure(candidates, followed, source)
        for name, candidate in candidates.items():
            if candidate.settings != self.strategies[name].settings:
                made = type(candidate)(candidate.settings, self._features)
                made.name = name
                self.strategies[name] = made
        self._follows_settings = spec is None
        self.is_asked = bool(followed)
        self._network_bits, problem = _network_bits(followed, source)
        self.silent = frozenset()
        return [*refused, *problem]

    def follow_settings(self, spec: Mapping[str, Any] | None, source: str) -> list[SettingsError]:
        """Take other settings for those that hold where the cluster has no NodeSLO; return what was refused."""
        self._spec = dict(spec or {})
        return self.follow(None, source) if self._follows_settings else []

    def decide(self, view: NodeView, now: float) -> list[Intent]:
        """Return the intents of all strategies, in the order of their names; `now` is monotonic seconds.

        Before protocol state may be asked for, what an earlier run left of it stays: all strategies are silent.
        """
        intents: list[Intent] = []
        silent = set()
        self.runs += 1
        for name, strategy in self.strategies.items():
            started = time.perf_counter()
            try:
                intents += strategy.decide(view, now)
                self._failing.discard(name)
                if strategy.silent:
                    silent.add(name)
            except Exception:  # noqa: BLE001 - one strategy never ends another; counted, logged once in a row
                silent.add(name)
                self.failures[name] += 1
                if name not in self._failing:
                    _log.exception("strategy %s failed; its settings stay in effect until their lease ends", name)
                self._failing.add(name)
            self.run_seconds[name] += time.perf_counter() - started
            self.problems[name] = len(strategy.problems)
        self.silent = frozenset(silent)
        if self.may_ask(now):
            return intents
        self.silent = frozenset(self.strategies)
        return [intent for intent in intents if not (isinstance(intent, Setting) and intent.protocol_state)]

    def note_eviction(self, path: str, now: float) -> None:
        """Record that the eviction of a pod has begun; `now` as in `decide`."""
        limit = now - _EVICTIONS_SECONDS
        self.evictions = {each: at for each, at in self.evictions.items() if at > limit} | {path: now}
        self._end_request(path)

    def note_request(self, path: str) -> None:
        """Record that the eviction of a pod is being asked for."""
        self.asked |= {path}

    def note_refusal(self, path: str, now: float) -> None:
        """Record that the eviction of a pod was refused; the strategies choose others for some time."""
        limit = now - _REFUSALS_SECONDS
        self.refusals = {each: at for each, at in self.refusals.items() if at > limit} | {path: now}
        self._end_request(path)

    def _end_request(self, path: str) -> None:
        self.asked -= {path}

    def refused(self, now: float) -> frozenset[str]:
        """Return the paths whose eviction was refused lately."""
        return frozenset(path for path, at in self.refusals.items() if now - at < _REFUSALS_SECONDS)


def open_strategies(settings: StrategiesSettings, source: str, *, live: bool = False) -> StrategyRunner | None:
    """Return the strategies that a NodeSLO enables; None without one, unless a `live` one may come.

    Raises SettingsError naming file and key when the NodeSLO cannot be read or a part of it is refused.
    """
    spec = node_slo(settings, source)
    if spec is None and not live:
        return None
    strategies = make_strategies(settings.features)
    known = {gate for strategy in strategies.values() for gate in strategy.features}
    for gate in settings.features:
        if gate not in known:
            problem = f"no feature gate {gate!r}; there are {', '.join(sorted(known))}"
            raise SettingsError(source, "[strategies.features]", problem)
    refused = configure(strategies, spec or {}, settings.node_slo_file or f"{source} [strategies.node_slo]")
    if refused:
        raise refused[0]
    runner = StrategyRunner(strategies, spec, settings.features)
    runner.is_asked = spec is not None
    if live:
        runner.await_answer()
    if spec is None:
        # Until the cluster has answered nothing is known, so that what an earlier run left stays.
        runner.silent = frozenset(strategies)
    return runner


def node_slo(settings: StrategiesSettings, source: str) -> Mapping[str, Any] | None:
    """Return the spec of a NodeSLO from its file or from the settings; None without either."""
    if settings.node_slo_file and settings.node_slo:
        raise SettingsError(source, "[strategies] node_slo", "node_slo_file is set too; keep one of them")
    if not settings.node_slo_file:
        return settings.node_slo or None
    try:
        text = Path(settings.node_slo_file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(settings.node_slo_file, "", f"cannot be read: {error}") from error
    document: Mapping[str, Any] = parse(text, settings.node_slo_file)
    spec: Mapping[str, Any] = document.get("spec", document)
    return spec


def _network_bits(spec: Mapping[str, Any], source: str) -> tuple[int, list[SettingsError]]:
    """The total bandwidth of a NodeSLO in bits per second, and what is wrong with it."""
    section = spec.get("systemStrategy")
    stated = section.get("totalNetworkBandwidth") if isinstance(section, Mapping) else None
    if stated is None:
        return 0, []
    key = "systemStrategy.totalNetworkBandwidth"
    try:
        bits = parse_quantity(str(stated))
    except QuantityError as error:
        return 0, [SettingsError(source, key, f"{error}; write bits per second like 10G")]
    if not 0 <= bits < 1 << 50:  # 0, the default of the manager, tells nothing
        return 0, [SettingsError(source, key, f"{stated!r} is no bandwidth; write bits per second like 10G")]
    return bits, []
