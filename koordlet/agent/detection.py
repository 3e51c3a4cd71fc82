"""The judge in the agent: built from the settings, fed every frame, its failures counted and never the tick's."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from api.frame import Frame
from api.settings import SettingsError, merge
from api.verdicts import Verdict
from detector.breaks import Between, no_breaks
from detector.cpi2.published import Cpi2Policy
from detector.judging.judge import Judge, JudgeSettings
from detector.judging.signals import Turnarounds
from detector.models.format import ModelFile, ModelsRefused, decode_models
from detector.recording.frames import essential
from detector.registry import default_rules, discover_symptoms
from detector.rules import Rule, load_rules, rules_of
from koordlet.agent.baseline_store import BaselineStore
from koordlet.agent.recorder import Recorder
from koordlet.agent.verdict_shares import VerdictShares
from koordlet.config import DetectionSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DetectionState:
    """Counters of judging since the start, and sizes of the baselines."""

    run_seconds: float = 0.0
    failures: int = 0
    ready_cells: int = 0
    warming_cells: int = 0
    refused_samples: int = 0
    """Samples for which baselines had no room."""
    saves: int = 0
    save_failures: int = 0
    files_refused: int = 0
    """Baseline files refused at the start and kept under another name."""


class Detection:
    """The judge with its recorder and its baseline store; `step` takes every frame.

    The judge gets the columns that a recording keeps and no others, so that a replay gives the same verdicts.
    """

    def __init__(self, judge: Judge, recorder: Recorder | None = None, store: BaselineStore | None = None) -> None:
        self.judge = judge
        self.recorder = recorder
        self.store = store
        self.failures = 0
        """Ticks in which the judge failed."""
        self.run_seconds = 0.0
        """Time spent judging since the start."""
        self._is_failing = False
        self._shares = VerdictShares()

    @property
    def open_verdicts(self) -> tuple[Verdict, ...]:
        """Verdicts in effect, of each owner of cgroups not more than its share."""
        return self._shares.without_withheld(self.judge.open_verdicts)

    @property
    def is_next_decisive(self) -> bool:
        """Whether the next frame can open a verdict on what the newest one showed first."""
        return not self._is_failing and self.judge.is_next_decisive

    @property
    def turnarounds(self) -> Turnarounds | None:
        """Requests of the newest frame with their baselines; None where none are measured or judging failed."""
        return None if self._is_failing else self.judge.turnarounds

    def step(self, frame: Frame, between: Between = no_breaks) -> Sequence[Verdict]:
        """Judge a frame; return the verdicts that open, change or close with it, none where the judge fails.

        `between` is called between the parts of the work.
        """
        started = time.perf_counter()
        try:
            kept = essential(frame)
            if self.recorder is not None:
                self.recorder.record(kept, self.judge)
            between()
            verdicts = self._shares.admit(frame.cgroups, self.judge.step(kept, between))
            if self.store is not None:
                self.store.save_if_due(self.judge.baselines, self.judge.told_times)
        except Exception:  # noqa: BLE001 - measuring goes on without verdicts; logged once in a row and counted
            self.failures += 1
            if not self._is_failing:
                _log.exception("judging a frame failed; measuring goes on")
            self._is_failing = True
            return ()
        finally:
            self.run_seconds += time.perf_counter() - started
        self._is_failing = False
        return verdicts

    @property
    def lost(self) -> dict[str, int]:
        """Losses by place: verdicts beyond an owner's share, frames and stacks that a recording lacks."""
        lost = {"verdicts.owner_share": self._shares.withheld} if self._shares.withheld else {}
        if self.recorder is None:
            return lost
        recorded = {"recording.frames": self.recorder.lost_frames, "recording.stacks": self.recorder.lost_stacks}
        return lost | recorded

    @property
    def state(self) -> DetectionState:
        """Counters since the start, and the present sizes of the baselines."""
        baselines, store = self.judge.baselines, self.store
        ready = baselines.ready_count(time.time())
        return DetectionState(
            run_seconds=self.run_seconds,
            failures=self.failures,
            ready_cells=ready,
            warming_cells=len(baselines) - ready,
            refused_samples=baselines.refused,
            saves=store.saves if store else 0,
            save_failures=store.failures if store else 0,
            files_refused=int(bool(store and store.refused)),
        )

    def close(self) -> None:
        """Close the recording, if there is one, and save the baselines; idempotent."""
        if self.recorder is not None:
            self.recorder.close()
        if self.store is not None:
            self.store.close(self.judge.baselines, self.judge.told_times)


def judge_settings(settings: DetectionSettings, *, cpu_model: str, source: str) -> JudgeSettings:
    """Settings of the judge. Raises SettingsError naming file (`source`, or that of rules or models) and key."""
    return JudgeSettings(
        rules=rules(settings, source),
        node_type=settings.node_type or cpu_model,
        models=_models(settings.models_file) if settings.models_file else None,
        cpi2=Cpi2Policy() if settings.cpi2 else None,
    )


def _models(models_file: str) -> ModelFile:
    try:
        return decode_models(Path(models_file).read_bytes())
    except OSError as error:
        raise SettingsError(models_file, "", f"cannot be read: {error}") from error
    except ModelsRefused as error:
        raise SettingsError(models_file, "", f"{error}; train anew with koord-detector train") from error


def rules(settings: DetectionSettings, source: str) -> tuple[Rule, ...]:
    """The rules of the rules file, or the built-in ones, with those of the settings merged over them by name."""
    symptoms = frozenset(discover_symptoms())
    base = {rule.name: rule for rule in _base(settings.rules_file, symptoms)}
    for name in settings.disabled_rules:
        if name not in base:
            problem = f"no rule {name!r}; there are {', '.join(sorted(base))}"
            raise SettingsError(source, "[detection] disabled_rules", problem)
    tables = {
        name: merge(_table(base[name]), table) if name in base else table for name, table in settings.rules.items()
    }
    merged = base | {rule.name: rule for rule in rules_of(tables, source, symptoms)}
    return tuple(rule for name, rule in merged.items() if name not in settings.disabled_rules)


def _base(rules_file: str, symptoms: frozenset[str]) -> tuple[Rule, ...]:
    if not rules_file:
        return default_rules()
    try:
        text = Path(rules_file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(rules_file, "", f"cannot be read: {error}") from error
    return load_rules(text, rules_file, symptoms)


def _table(rule: Rule) -> dict[str, Any]:
    table: dict[str, Any] = msgspec.to_builtins(rule)
    del table["name"]
    return table
