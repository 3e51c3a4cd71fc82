"""Frames for judges from seconds lost per second, tick by tick."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from api.frame import CGROUP, CgroupInfo, Frame, Table
from api.verdicts import Verdict
from detector.judging.judge import Judge, JudgeSettings


@dataclass(frozen=True)
class Tick:
    """Growth in one second: columns in their native unit by cgroup, blame in seconds by (victim, culprit)."""

    columns: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    blame: Mapping[tuple[int, int], float] = field(default_factory=dict)
    alive: Sequence[int] | None = None


def contention(victim: int = 1, culprit: int = 2, lost: float = 0.4) -> Tick:
    """One cgroup waits for another one's CPU use."""
    return Tick({"cpu.wait_neighbour_ns": {victim: lost * 1e9}}, {(victim, culprit): lost})


CALM = Tick({"cpu.wait_neighbour_ns": {}}, {})


def frames(ticks: Sequence[Tick], infos: Sequence[CgroupInfo], *, tick_seconds: float = 1.0) -> list[Frame]:
    """Cumulative frames, the first before any growth."""
    names = sorted({name for tick in ticks for name in tick.columns})
    sums = {name: dict.fromkeys((info.id for info in infos), 10.0**9) for name in names}
    blame = {pair: 10.0**9 for tick in ticks for pair in tick.blame}
    made = []
    for number, tick in enumerate([Tick(alive=ticks[0].alive), *ticks]):
        for name, grown in tick.columns.items():
            for one, amount in grown.items():
                sums[name][one] += amount
        for pair, seconds in tick.blame.items():
            blame[pair] += seconds * 1e9
        alive = [info for info in infos if tick.alive is None or info.id in tick.alive]
        ids = np.array([info.id for info in alive], dtype=np.uint64)
        columns = {name: np.array([round(sums[name][info.id]) for info in alive], dtype=np.uint64) for name in names}
        pairs = np.array(sorted(blame) or np.empty((0, 2)), dtype=np.uint64)
        amounts = np.array([round(blame[pair]) for pair in sorted(blame)], dtype=np.uint64)
        keys = {"cgroup": pairs[:, 0], "culprit": pairs[:, 1]}
        tables = {CGROUP: Table({"cgroup": ids}, columns), "cpu.blame": Table(keys, {"cpu.blame_ns": amounts})}
        now_ns = round(number * tick_seconds * 1e9)
        made.append(Frame(now_ns, 1_700_000_000 * 10**9 + now_ns, tuple(alive), tables))
    return made


def cgroup(identity: int, path: str, **more: str) -> CgroupInfo:
    """Description of one cgroup."""
    return CgroupInfo(identity, path, path.rpartition("/")[2] or "/", **more)


WEB, BATCH, OTHER = cgroup(1, "/web"), cgroup(2, "/batch"), cgroup(3, "/other")


def judged(
    ticks: Sequence[Tick],
    infos: Sequence[CgroupInfo] = (WEB, BATCH, OTHER),
    settings: JudgeSettings | None = None,
) -> list[list[Verdict]]:
    """Verdicts of the judge in each tick."""
    judge = Judge(settings or JudgeSettings())
    return [judge.step(frame) for frame in frames(ticks, infos)][1:]


def without(tick: Tick, *gone: int, of: Sequence[CgroupInfo] = (WEB, BATCH, OTHER)) -> Tick:
    """The tick at whose end some cgroups are no more."""
    return replace(tick, alive=[info.id for info in of if info.id not in gone])
