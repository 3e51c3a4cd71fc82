"""`koordlet demo`: three phases, a live view, a table, a picture; nothing stays behind on the machine."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import IO

import msgspec
import numpy as np
from rich.console import Console
from rich.live import Live

from api.verdict_text import in_words
from api.verdicts import from_json as verdict_from
from koordlet.demo.measure import DemoPhase
from koordlet.demo.show import live, save_picture, table
from koordlet.demo.stage import BATCH, ONLINE, ROOT, Records, Stage, read_lines, staged

NAMES = ("alone", "unprotected", "protected")
_SETTLE_SECONDS = 3.0
"""Time between the start of the programs and the first request that counts."""
_REFRESH_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """Plan of the demo."""

    phase_seconds: float = 30.0
    service_seconds: float = 0.010
    """CPU time of a request."""
    load: float = 0.3
    """Share of the machine that the requests need."""
    seed: int = 1


@dataclass
class _AgentOutput:
    """Verdicts and actions of the agent in a phase, in words, with the times of the actions."""

    stage: Stage
    pipe: IO[bytes]
    began: float
    lines: list[str] = field(default_factory=list)
    actions: list[tuple[float, str]] = field(default_factory=list)
    _rest: bytes = b""
    _read: int = 0

    def read_new(self) -> None:
        """Read new verdicts and audit lines."""
        verdicts, self._rest = read_lines(self.pipe, self._rest)
        for line in verdicts:
            verdict = verdict_from(line)
            if verdict.victim.startswith(ROOT):
                self.lines.append(in_words(verdict, _short))
        if self.stage.audit.exists():
            with self.stage.audit.open("rb") as audit:
                audit.seek(self._read)
                data = audit.read()
            whole = data.rfind(b"\n") + 1
            self._read += whole
            for line in data[:whole].splitlines():
                self._act(msgspec.json.decode(line))

    def _act(self, entry: dict[str, object]) -> None:
        file = str(entry.get("file", "")).rpartition("/")[2]
        target = _short(str(entry.get("target", "")))
        would = "would set" if entry.get("dry_run") else "sets"
        self.lines.append(
            f"{would} {file} of {target} from {entry.get('from')} to {entry.get('to')} ({entry.get('outcome')})"
        )
        if entry.get("outcome") in ("set", "restored"):
            self.actions.append((time.monotonic() - self.began, f"{target}: {file} = {entry.get('to')}"))


def _short(path: str) -> str:
    return {ONLINE: "online", BATCH: "batch"}.get(path, path)


def run(plan: DemoPlan, picture: Path | None, console: Console, stop: Event) -> Sequence[DemoPhase]:
    """Run all phases; fewer when stopped. Raises StageError, and OSError where cgroups cannot be made."""
    finished: list[DemoPhase] = []
    actions: list[tuple[float, str]] = []
    with staged(plan.service_seconds) as stage, Live(console=console, refresh_per_second=4, transient=True) as screen:
        for name in NAMES:
            phase, actions = _phase(
                stage, plan, name, stop, lambda now, left, lines: screen.update(live(finished, now, left, lines))
            )
            if stop.is_set():
                break
            finished.append(phase)
    if finished:
        console.print(table(finished, title=f"requests of {plan.service_seconds * 1e3:g} ms, open loop"))
    if picture is not None and len(finished) == len(NAMES):
        save_picture(finished, picture, actions)
        console.print(f"picture: {picture}")
    return finished


Update = Callable[[DemoPhase, float, Sequence[str]], None]


def _phase(
    stage: Stage, plan: DemoPlan, name: str, stop: Event, update: Update
) -> tuple[DemoPhase, list[tuple[float, str]]]:
    rate = plan.load * (os.cpu_count() or 1) / plan.service_seconds
    stage.audit.unlink(missing_ok=True)
    stage.start_service()
    agent = stage.start_agent(acts=name == "protected")
    if name != "alone":
        stage.start_batch()
    stop.wait(_SETTLE_SECONDS)
    output = _AgentOutput(stage, agent, time.monotonic())
    records = Records(stage.start_client(rate, plan.phase_seconds, plan.seed))
    blocks, began = stage.blocks_done(), time.monotonic()
    done, seconds = blocks, 1e-9
    while not records.ended and not stop.is_set():
        stop.wait(_REFRESH_SECONDS)
        stage.check()
        records.read()
        output.read_new()
        if time.monotonic() - began <= plan.phase_seconds:
            done, seconds = stage.blocks_done(), time.monotonic() - began
        at, latency = records.columns()
        update(
            DemoPhase(name, seconds, at, latency, done - blocks),
            plan.phase_seconds - (time.monotonic() - began),
            output.lines,
        )
    stage.stop_programs()
    at, latency = records.columns()
    order = np.argsort(at, kind="stable")
    return DemoPhase(name, seconds, at[order], latency[order], done - blocks), output.actions
