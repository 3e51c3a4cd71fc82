"""One node's judge: frames in, verdicts out. The agent's tick and a replayed recording host the same object.

All decisions come from the frames, the settings and the checkpoint it was resumed from; it reads no clock
and no file, so equal frames give equal verdicts.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.frame import CgroupInfo, Frame
from api.settings import SettingsError, convert
from api.verdicts import CgroupRef, Verdict
from api.window import Window
from detector.baselines.learner import Baselines
from detector.baselines.state import BaselinesState, baselines_state, restore_baselines
from detector.baselines.values import BaselinePolicy, CellRecord, ToldTime, WorkloadKey
from detector.breaks import Between, no_breaks
from detector.cgroup_tree import CgroupTree
from detector.checkpoint import SCHEMA, CheckpointRefused, PackedFrame, pack_frame, unpack_frame
from detector.cpi2.published import Cpi2Policy
from detector.cpi2.sampler import COUNTERS, Cpi2Sampler, Sampled, SamplerState
from detector.judging.acceptance import TickTimes, with_acceptance
from detector.judging.diagnosis import RuleDiagnosis, diagnose
from detector.judging.engine import RuleEngine
from detector.judging.engine_state import EngineState, engine_state, restore_engine
from detector.judging.features import features
from detector.judging.signals import SIGNAL_COLUMNS, Turnarounds, observe, turnarounds, workload_key
from detector.judging.suspects import suspects
from detector.models.bank import ModelBank
from detector.models.features import FEATURE_COLUMNS
from detector.models.format import ModelFile
from detector.registry import default_rules, discover_symptoms
from detector.rules import Rule, SuspicionPolicy, check_rule
from detector.symptom import Symptom
from detector.view import View, prune, ref_of

NAME_RETENTION_NS = 12 * 10**9
"""Time for which a cgroup that is gone keeps its name, so that a culprit that has just exited can be named."""

EARLY_RATIO = 0.75
"""Of the time between the two frames before, the most that a frame comes after the last one if it is an early one."""

FORGET_INTERVAL_NS = 3600 * 10**9
"""Faded baselines are dropped when the wall clock enters another such span, which needs no state."""


class JudgeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a judge; recorded with its frames."""

    rules: tuple[Rule, ...] = msgspec.field(default_factory=default_rules)
    span_seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 0.9
    """Verdicts rest on the newest frames that span at least this: a little less than a tick, so that an early one does
    not double the span."""
    node_type: str = ""
    """CPU model: ordinary behaviour is compared only within it."""
    baselines: BaselinePolicy = BaselinePolicy()
    cpi2: Cpi2Policy | None = None
    """Judge cycles per instruction as CPI2 does, too."""
    models: ModelFile | None = None
    """Anomaly models; they raise suspicion and never make a verdict alone."""
    fleet_models: tuple[ModelFile, ...] = ()
    """Those of the cluster, one file for each list of features; they come and go while the judge runs."""
    suspicion: SuspicionPolicy = SuspicionPolicy()


def check_settings(
    settings: JudgeSettings, source: str = "judge settings", symptoms: Mapping[str, Symptom] | None = None
) -> None:
    """Raise SettingsError naming the rule or table and the key that is out of range or does not fit another."""
    names = Counter(rule.name for rule in settings.rules)
    known = frozenset(discover_symptoms() if symptoms is None else symptoms)
    for rule in settings.rules:
        check_rule(rule, source, known)
        if names[rule.name] > 1:
            raise SettingsError(f"{source}: rule {rule.name}", "name", "two rules have this name")
    plain = msgspec.structs.replace(settings, rules=(), models=None, fleet_models=())
    convert(msgspec.to_builtins(plain), JudgeSettings, source)
    cpi2 = settings.cpi2
    if cpi2 and cpi2.sample_seconds >= cpi2.sample_every_seconds:
        problem = f"must be less than sample_every_seconds = {cpi2.sample_every_seconds:g}"
        raise SettingsError(source, "[cpi2] sample_seconds", problem)


class _State(msgspec.Struct, frozen=True):
    schema: str
    frames: tuple[PackedFrame, ...]
    gone: dict[int, tuple[str, int]]
    baselines: BaselinesState
    engine: EngineState
    cpi2: SamplerState | None
    gone_refs: dict[str, CgroupRef] = {}
    gap_seconds: float = 0.0


class _Schema(msgspec.Struct, frozen=True):
    schema: str


class Judge:
    """Feed it every frame of a node in order. Raises SettingsError for invalid settings."""

    def __init__(
        self,
        settings: JudgeSettings,
        baselines: Baselines | None = None,
        symptoms: Mapping[str, Symptom] | None = None,
    ) -> None:
        """Judge by `symptoms`; None: by all that are installed."""
        check_settings(settings, symptoms=symptoms)
        self.settings = settings
        self.baselines = Baselines(settings.baselines) if baselines is None else baselines
        self._engine = RuleEngine(
            settings.rules, symptoms=symptoms, suspicion=settings.suspicion, policy=settings.baselines
        )
        self.missing_symptoms: tuple[str, ...] = ()
        """Symptoms that the judge of the checkpoint had and that are not installed here."""
        self._banks = _banks(settings)
        self._cpi2 = Cpi2Sampler(settings.cpi2, settings.node_type) if settings.cpi2 else None
        self._frames: deque[Frame] = deque()
        self._gaps_seconds = (0.0, 0.0)
        """Time between the two newest frames, and between the two before the newest."""
        self._gone: dict[int, tuple[str, int]] = {}
        self._gone_refs: dict[str, CgroupRef] = {}
        self._cgroups = _Cgroups((), settings.node_type)

    @property
    def open_verdicts(self) -> tuple[Verdict, ...]:
        """Open verdicts, as last reported, by victim and rule."""
        return tuple(sorted(self._engine.open.values(), key=lambda verdict: (verdict.victim, verdict.rule)))

    def told_times(self) -> tuple[ToldTime, ...]:
        """Return for how long verdicts by usual values were open, as far as it counts after the next start."""
        return self._engine.told_times()

    @property
    def suspects(self) -> NDArray[np.bool_]:
        """Rows of the newest frame that cheap signals make suspicious, as victims or as their culprits."""
        if not self._frames or self._engine.tick is None:
            return np.zeros(len(self._frames[-1].cgroups) if self._frames else 0, dtype=np.bool_)
        return suspects(self._engine)

    @property
    def turnarounds(self) -> Turnarounds | None:
        """Requests of the newest tick and their usual turnaround; None where none are seen."""
        return turnarounds(self._engine.tick.view) if self._engine.tick else None

    def replace_rules(self, rules: tuple[Rule, ...]) -> None:
        """Judge by other rules from the next frame on; open verdicts of unchanged rules stay open.

        Open verdicts of removed and changed rules close with the next frame. Raises SettingsError for invalid rules,
        and goes on with those in effect.
        """
        settings = msgspec.structs.replace(self.settings, rules=rules)
        check_settings(settings, symptoms=self._engine.symptoms)
        self.settings = settings
        self._engine.replace_rules(rules)

    def replace_fleet_models(self, files: tuple[ModelFile, ...]) -> None:
        """Raise suspicion by other models of the cluster from the next frame on."""
        self.settings = msgspec.structs.replace(self.settings, fleet_models=files)
        self._banks = _banks(self.settings)

    def borrow(self, cells: Sequence[CellRecord], now_seconds: float) -> int:
        """Judge by another's cells where this node has not learned enough itself; return how many were taken.

        They weigh twice what a cell must to judge by, so that a few minutes of own samples outweigh them.
        """
        taken = self.baselines.borrow(cells, now_seconds)
        if taken:
            # Other settings by identity begin a new segment of a recording, with a checkpoint that has the cells.
            self.settings = msgspec.structs.replace(self.settings)
        return taken

    @property
    def is_next_decisive(self) -> bool:
        """Whether the next frame can open a verdict on what the newest one showed first, and so should come early."""
        return self._engine.is_next_decisive

    def diagnose(self, path: str) -> tuple[RuleDiagnosis, ...]:
        """Return a diagnosis of a cgroup in the newest tick by each rule, in their order.

        Empty for a path that the newest frame has not, and where no tick was judged since start or new rules.
        """
        return diagnose(self._engine, path)

    def step(self, frame: Frame, between: Between = no_breaks) -> list[Verdict]:
        """Return the verdicts that open, change or close with this frame, by victim and rule.

        `between` is called between the parts of the work, so that it may be spread.
        """
        self._add_frame(prune(frame, self._columns, self._engine.tables))
        if len(self._frames) < 2:
            return []
        now_seconds = frame.wall_ns / 1e9
        view = self._view()
        seen = observe(view, self._cgroups.keys)
        between()
        view.judgements = self.baselines.judge(seen, now_seconds)
        if self.baselines.told:
            self._engine.take_over(self.baselines.told, view, frame.monotonic_ns)
            self.baselines.told = ()
        view.cpi2 = self._cpi2_sample(view)
        verdicts = self._engine.step(view, frame.monotonic_ns, self._suspicious(view), between)
        between()
        engine, longest = self._engine, self.settings.baselines.exclude_seconds
        if not self._is_early:
            harmed, outlasted, unusual, told = engine.harmed(), engine.outlasted(), engine.unusual(), engine.told()
            self.baselines.learn(seen, now_seconds, harmed, outlasted, unusual, told)
        if self._frames[-2].wall_ns // FORGET_INTERVAL_NS != frame.wall_ns // FORGET_INTERVAL_NS:
            self.baselines.forget(now_seconds)
        before_seconds = self._frames[-2].wall_ns / 1e9
        times = TickTimes(before_seconds, now_seconds)
        return with_acceptance(verdicts, self.open_verdicts, engine.calmed, times, longest, engine.earlier_seconds)

    def checkpoint(self) -> bytes:
        """Return the state between ticks; a judge resumed from it gives, byte for byte, the verdicts that this one
        will give."""
        state = _State(
            schema=SCHEMA,
            frames=tuple(pack_frame(frame) for frame in self._frames),
            gone=self._gone,
            gone_refs=self._gone_refs,
            gap_seconds=self._gaps_seconds[0],
            baselines=baselines_state(self.baselines),
            engine=engine_state(self._engine),
            cpi2=self._cpi2.state() if self._cpi2 else None,
        )
        return msgspec.msgpack.encode(state)

    @classmethod
    def resume(cls, settings: JudgeSettings, data: bytes) -> "Judge":
        """The judge that wrote the checkpoint; where the settings differ, rules that changed remember nothing.

        It has the symptoms of that judge and those that the rules need, whatever else is installed here.
        Raises CheckpointRefused with the reason.
        """
        try:
            schema = msgspec.msgpack.decode(data, type=_Schema).schema
            if schema != SCHEMA:
                raise CheckpointRefused(f"schema is {schema!r}, this version reads {SCHEMA!r}")
            state = msgspec.msgpack.decode(data, type=_State)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CheckpointRefused(f"not a checkpoint: {error}") from error
        try:
            return cls._restored(settings, state)
        except (KeyError, IndexError, TypeError) as error:
            raise CheckpointRefused(f"the state is damaged: {error!r}") from error

    @classmethod
    def _restored(cls, settings: JudgeSettings, state: _State) -> "Judge":
        installed, recorded = discover_symptoms(), state.engine.symptoms
        needed = {*recorded, *(name for rule in settings.rules for name in (*rule.symptoms, *rule.unless_measured))}
        symptoms = {name: each for name, each in installed.items() if name in needed} if recorded else installed
        judge = cls(settings, restore_baselines(state.baselines, settings.baselines), symptoms)
        judge.missing_symptoms = tuple(name for name in recorded if name not in installed)
        restore_engine(judge._engine, state.engine)
        if judge._cpi2 and state.cpi2:
            judge._cpi2.restore(state.cpi2)
        judge._frames.extend(unpack_frame(frame) for frame in state.frames)
        judge._gaps_seconds = (state.gap_seconds, 0.0)
        judge._gone = dict(state.gone)
        judge._gone_refs = dict(state.gone_refs)
        if judge._frames:
            judge._cgroups = _Cgroups(judge._frames[-1].cgroups, settings.node_type)
        return judge

    @property
    def _columns(self) -> frozenset[str]:
        wanted = self._engine.columns | SIGNAL_COLUMNS
        return wanted | FEATURE_COLUMNS if self._banks else wanted

    def _add_frame(self, frame: Frame) -> None:
        """Remember a frame, and no more of the older ones than the next tick can ask for."""
        if self._frames and frame.monotonic_ns <= self._frames[-1].monotonic_ns:
            self._frames.clear()
            self._gaps_seconds = (0.0, 0.0)
            self._engine.memory.not_after(frame.monotonic_ns)
        if self._frames:
            since_seconds = (frame.monotonic_ns - self._frames[-1].monotonic_ns) / 1e9
            self._gaps_seconds = since_seconds, self._gaps_seconds[0]
        self._frames.append(frame)
        reach_ns = frame.monotonic_ns - int(self.settings.span_seconds * 1e9)
        while len(self._frames) > 2 and self._frames[1].monotonic_ns <= reach_ns:
            self._frames.popleft()
        if not self._cgroups.same(frame.cgroups):
            alive = {info.id for info in frame.cgroups}
            left = {info.id: (info.path, frame.monotonic_ns) for info in self._cgroups.infos if info.id not in alive}
            self._gone |= left
            self._gone_refs |= {info.path: ref_of(info) for info in self._cgroups.infos if info.id not in alive}
            self._cgroups = _Cgroups(frame.cgroups, self.settings.node_type, self._cgroups)
        if self._gone:
            oldest = frame.monotonic_ns - NAME_RETENTION_NS
            self._gone = {one: (path, when) for one, (path, when) in self._gone.items() if when >= oldest}
            kept = {path for path, _when in self._gone.values()}
            if len(kept) < len(self._gone_refs):
                self._gone_refs = {path: ref for path, ref in self._gone_refs.items() if path in kept}

    @property
    def _is_early(self) -> bool:
        """Whether the newest frame came amid an interval, to tell whether what the one before showed lasts.

        It is judged by what was lost since, of which that one knows nothing.
        """
        gap, before = self._gaps_seconds
        return 0.0 < gap <= EARLY_RATIO * before

    def _view(self) -> View:
        wanted, names = self._columns, {one: path for one, (path, _when) in self._gone.items()}
        span, is_early = self.settings.span_seconds, self._is_early
        window, refs = Window(self._frames), self._gone_refs
        if is_early:
            span = min(span, self._gaps_seconds[0])
        tree = self._cgroups.tree
        return View(window, wanted, span_seconds=span, gone=names, gone_refs=refs, tree=tree, is_early=is_early)

    def _cpi2_sample(self, view: View) -> Sampled | None:
        if self._cpi2 is None or not all(view.has(column) for column in COUNTERS):
            return None
        counters = np.stack([view.counter(column).astype(np.float64) for column in COUNTERS])
        return self._cpi2.step(view.cgroups, view.ids, counters, view.window.last.monotonic_ns)

    def _suspicious(self, view: View) -> NDArray[np.bool_] | None:
        if not self._banks:
            return None
        suspicious = np.zeros(len(view.ids), np.bool_)
        for bank in self._banks:
            _names, matrix = features(view, bank.features)
            suspicious |= bank.evaluate(self._cgroups.keys, matrix).suspicious
        return suspicious


def _banks(settings: JudgeSettings) -> tuple[ModelBank, ...]:
    files = (settings.models, *settings.fleet_models)
    return tuple(ModelBank(file) for file in files if file is not None)


_UNKNOWN = (None, WorkloadKey(""))


class _Cgroups:
    """Tree and workload keys of a frame's cgroups, computed only when they change."""

    def __init__(self, infos: tuple[CgroupInfo, ...], node_type: str, before: "_Cgroups | None" = None) -> None:
        self.infos = infos
        self.tree = CgroupTree(infos)
        known = {info.id: (info, key) for info, key in zip(before.infos, before.keys, strict=True)} if before else {}
        self.keys: tuple[WorkloadKey, ...] = tuple(
            key if info is earlier or info == earlier else workload_key(info, node_type)
            for info in infos
            for earlier, key in (known.get(info.id, _UNKNOWN),)
        )

    def same(self, infos: tuple[CgroupInfo, ...]) -> bool:
        """Return whether these are the same cgroups in the same rows."""
        return self.infos is infos or self.infos == infos


def judged_columns() -> frozenset[str]:
    """Columns of the dense table that some judge may read."""
    symptoms = frozenset(column for symptom in discover_symptoms().values() for column in symptom.columns)
    return symptoms | SIGNAL_COLUMNS | FEATURE_COLUMNS
