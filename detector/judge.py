"""One node's judge: frames in, verdicts out. The agent's tick and a replayed recording host the same object.

Everything that decides comes from the frames, the settings and the checkpoint it was resumed from; it reads no clock
and no file, so equal frames give equal verdicts.
"""

from collections import deque
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.frame import CgroupInfo, Frame
from api.verdicts import State, Verdict
from api.window import Window
from detector.baseline import Baselines
from detector.baseline_values import BaselinePolicy, Judgement, LoadKind, Observation, WorkloadKey
from detector.checkpoint import SCHEMA, CheckpointRefused, PackedFrame, pack_frame, unpack_frame
from detector.engine import Engine
from detector.look import RuleLook
from detector.models import ModelFile
from detector.rules import DEFAULT_RULES, Rule
from detector.symptom import ratio
from detector.view import Floats, View

KEPT_SECONDS = 12.0
"""How long frames are remembered, so that a culprit that has just died still has a name."""


class JudgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides besides the frames; recorded with them."""

    rules: tuple[Rule, ...] = DEFAULT_RULES
    span_seconds: float = 1.0
    """Verdicts rest on the newest frames that span at least this."""
    node_type: str = ""
    """CPU model: ordinary behaviour is compared only within it."""
    baselines: BaselinePolicy = BaselinePolicy()
    models: ModelFile | None = None
    """Anomaly models; they raise suspicion and never make a verdict alone."""


class _State(msgspec.Struct, frozen=True):
    schema: str
    frames: tuple[PackedFrame, ...]
    open: tuple[Verdict, ...]


class Judge:
    """Feed it every frame of a node in order."""

    def __init__(self, settings: JudgeSettings, baselines: Baselines | None = None) -> None:
        self.settings = settings
        self.baselines = baselines or Baselines(settings.baselines)
        self._expected = _Expected()
        self._engine = Engine(settings.rules, baselines=self._expected, span_seconds=settings.span_seconds)
        self._frames: deque[Frame] = deque()
        self._open: dict[tuple[str, str], Verdict] = {}

    @property
    def open_verdicts(self) -> tuple[Verdict, ...]:
        """Verdicts that stand, as last told, by victim and rule."""
        return tuple(self._open[key] for key in sorted(self._open))

    @property
    def suspects(self) -> NDArray[np.bool_]:
        """Rows of the newest frame that cheap signals make suspicious, as victims or as their culprits."""
        if not self._frames:
            return np.zeros(0, dtype=np.bool_)
        paths = {victim for victim, _rule in self._open}
        paths |= {culprit.path for verdict in self._open.values() for culprit in verdict.culprits}
        return np.array([info.path in paths for info in self._frames[-1].cgroups], dtype=np.bool_)

    def replace_rules(self, rules: tuple[Rule, ...]) -> None:
        """Judge by other rules from the next frame on; open verdicts of rules that stay as they are stand.

        What rules that go or change had open closes with the next frame.
        """
        self.settings = msgspec.structs.replace(self.settings, rules=rules)
        self._engine.replace_rules(rules)

    def look(self, path: str) -> tuple[RuleLook, ...]:
        """What each rule sees of a cgroup in the newest tick, in the order of the rules; empty for an unknown path."""
        known = self._frames and any(info.path == path for info in self._frames[-1].cgroups)
        return self._engine.look(path) if known else ()

    def checkpoint(self) -> bytes:
        """Everything remembered between ticks; `resume` goes on from it as if nothing had happened."""
        state = _State(SCHEMA, tuple(pack_frame(frame) for frame in self._frames), self.open_verdicts)
        return msgspec.msgpack.encode(state)

    @classmethod
    def resume(cls, settings: JudgeSettings, data: bytes) -> "Judge":
        """The judge that wrote the checkpoint. Raises CheckpointRefused with the reason."""
        try:
            state = msgspec.msgpack.decode(data, type=_State)
        except msgspec.DecodeError as error:
            raise CheckpointRefused(f"not a checkpoint: {error}") from error
        if state.schema != SCHEMA:
            raise CheckpointRefused(f"schema is {state.schema!r}, this version reads {SCHEMA!r}")
        judge = cls(settings)
        judge._frames.extend(unpack_frame(frame) for frame in state.frames)
        judge._open = {(verdict.victim, verdict.rule): verdict for verdict in state.open}
        return judge

    def step(self, frame: Frame) -> list[Verdict]:
        """What opens, changes or closes with this frame, by victim and rule."""
        self._frames.append(frame)
        oldest = frame.monotonic_ns - int(KEPT_SECONDS * 1e9)
        while self._frames[0].monotonic_ns < oldest:
            self._frames.popleft()
        window = Window(self._frames)
        if len(self._frames) < 2 or window.seconds <= 0:
            return []
        seen = observe(window, self.settings)
        now_seconds = frame.wall_ns / 1e9
        self._expected.judgements = self.baselines.judge(seen, now_seconds)
        verdicts = self._engine.step(window, frame.monotonic_ns)
        for verdict in verdicts:
            if verdict.state is State.CLOSE:
                self._open.pop((verdict.victim, verdict.rule), None)
            else:
                self._open[verdict.victim, verdict.rule] = verdict
        harmed = {victim for victim, _rule in self._open}
        self.baselines.learn(seen, now_seconds, np.array([info.path in harmed for info in frame.cgroups], dtype=bool))
        return verdicts


class _Expected:
    """The judgements of this tick, as symptoms ask for them."""

    def __init__(self) -> None:
        self.judgements: Mapping[str, Judgement] = {}

    def expected(self, signal: str, cgroups: tuple[CgroupInfo, ...]) -> Floats:
        found = self.judgements.get(signal)
        return np.full(len(cgroups), np.nan) if found is None else found.expected


def observe(window: Window, settings: JudgeSettings) -> Observation:
    """What baselines learn of the newest tick: a row for each cgroup that has a workload's name."""
    columns = ("cpu.oncpu_ns", "pmu.cycles", "pmu.instructions", "pmu.llc_references", "pmu.llc_misses")
    view = View(window, columns, span_seconds=settings.span_seconds)
    keys = [WorkloadKey(info.workload, info.container, settings.node_type) for info in view.cgroups]
    named = np.array([bool(info.workload) for info in view.cgroups], dtype=np.bool_)
    demand = view.rate("cpu.oncpu_ns") if view.has("cpu.oncpu_ns") else np.full(len(keys), np.nan)
    values: dict[str, Floats] = {}
    if view.has("pmu.cycles", "pmu.instructions"):
        values["cpi"] = ratio(view.rate("pmu.cycles"), view.rate("pmu.instructions"))
    if view.has("pmu.llc_references", "pmu.llc_misses"):
        values["llc_miss_ratio"] = ratio(view.rate("pmu.llc_misses"), view.rate("pmu.llc_references"))
    kind = np.full(len(keys), int(LoadKind.CPU_DEMAND_CORES), dtype=np.int64)
    return Observation(keys, np.where(named, demand, np.nan), kind, values)
