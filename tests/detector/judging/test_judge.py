"""The judge as a whole: what must not matter to its verdicts, and that a checkpoint forgets nothing."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from api.frame import CGROUP, HOST, CgroupInfo, Frame, Table
from api.metrics import BY_COLUMN, MetricKind
from api.settings import SettingsError
from api.verdicts import Verdict, VerdictState, to_json
from detector.baselines.values import BaselinePolicy, BaselineSample, WorkloadKey
from detector.checkpoint import CheckpointRefused
from detector.cpi2.published import Cpi2Policy
from detector.judging.judge import Judge, JudgeSettings, judged_columns
from detector.models.format import SCHEMA as MODELS_SCHEMA
from detector.models.format import Mixture, ModelFile, WorkloadModel
from detector.rules import Rule, SuspicionPolicy

TABLES = ("cpu.blame", "memory.blame", "blockio.blame", "smt.blame")
BASE_WALL_NS = 1_700_000_000 * 10**9
QUICK_CPI2 = Cpi2Policy(
    anomaly_outliers=2,
    min_tasks=1,
    min_samples_per_task=2,
    sample_seconds=1.0,
    sample_every_seconds=2.0,
    correlation_seconds=20.0,
)
MODEL = WorkloadModel(
    key=WorkloadKey("w1", "", "cpu"),
    center=(0.5,),
    scale=(0.5,),
    threshold=-1.5,
    model=Mixture((1.0,), ((0.0,),), (((1.0,),),)),
    samples=100,
    chosen_by="labels",
    average_precision={"gaussian_mixture": 1.0},
)
EVERYTHING = JudgeSettings(
    node_type="cpu",
    baselines=BaselinePolicy(warm_samples=3.0, warm_periods=1),
    cpi2=QUICK_CPI2,
    models=ModelFile(MODELS_SCHEMA, ("cpu_cores",), 0.0, (MODEL,)),
)


def growth(rng: np.random.Generator, columns: Sequence[str], storm: np.ndarray) -> dict[str, np.ndarray]:
    """Growth of each column in one tick, more of it where there is a storm."""
    count, calm = len(storm), rng.uniform(0.99, 1.01, len(storm))
    grown = {}
    for name in columns:
        usual = 10.0 ** rng.uniform(5, 7, count) if name.endswith(("_ns", "_us")) else rng.uniform(50, 100, count)
        grown[name] = np.where(storm, usual * rng.uniform(1, 100, count), usual)
    grown["cpu.oncpu_ns"], grown["cpu.wait_neighbour_ns"] = 9e8 * calm, np.where(storm, 3e8, 1e5)
    grown["pmu.instructions"], grown["pmu.cycles"] = 1e9 * calm, np.where(storm, 3e9, 1e9 * calm)
    grown["pmu.llc_references"], grown["pmu.llc_misses"] = 1e6 * calm, np.where(storm, 5e5, 1e5 * calm)
    grown["resctrl.mbm_total_bytes"] = np.where(storm.any(), 1e9 * calm, 1e8 * calm)
    grown["cpu.smt_foreign_ns"] = np.where(storm, 9e8, 1e5)
    grown["memstat.refaults"] = np.where(storm, 1e4, 10.0)
    for limited in ("memory.stall_own_limit_ns", "memory.stall_ancestor_limit_ns"):  # every other one has no limit
        grown[limited] = np.where(np.arange(count) % 2, grown[limited], 0.0)
    for resource in ("io", "memory"):
        grown[f"pressure.{resource}_some_us"] = np.where(storm, 9e5, 1e3)
    for column in ("blockio.queue_ns", "blockio.device_ns", "blockio.excess_ns", "blockio.stalled_ns"):
        # Every third has a file system without a disk.
        grown[column] = np.where(np.arange(count) % 3, grown[column], np.minimum(grown[column], 1e5))
    grown["blockio.throttle_ns"] = np.where(np.arange(count) % 3, grown["blockio.throttle_ns"], 1e5)
    grown["net.tcp_retransmits"] = np.where(storm, 20.0, 0.0)
    grown["turnaround.requests"] = 100 * calm
    grown["turnaround.sum_ns"] = grown["turnaround.requests"] * np.where(storm, 1e7, 1e6)
    return grown


def wild(seed: int, ticks: int, *, cgroups: int = 7, mortal: float = 0.3) -> list[Frame]:
    """Frames with every column and table, calm and stormy by turns, in which cgroups come and go."""
    rng = np.random.default_rng(seed)
    columns = sorted(judged_columns())
    born = rng.integers(-ticks, ticks // 2, cgroups)
    died = np.where(rng.random(cgroups) < mortal, rng.integers(ticks // 2, ticks, cgroups), 10 * ticks)
    sums = {name: rng.integers(0, 10**12, cgroups).astype(np.uint64) for name in columns}
    pairs = np.array([(a, b) for a in range(cgroups) for b in range(cgroups) if a != b])
    blames = {table: np.zeros(len(pairs), dtype=np.uint64) for table in TABLES}
    made, storm = [], rng.random((ticks, cgroups)) < 0.3
    storm[: ticks // 3] = False
    host = dict.fromkeys(("hostwide.busy_ns", "hostwide.steal_ns"), 10**9)
    for tick in range(ticks):
        for name, grown in growth(rng, columns, storm[tick]).items():
            sums[name] += grown.astype(np.uint64)
        alive = np.flatnonzero((born <= tick) & (tick < died))
        ids = (alive + 1).astype(np.uint64)
        infos = tuple(
            CgroupInfo(int(i), f"/pods/c{i}", f"c{i}", qos="BE" if i == 2 else "", workload=f"w{i}") for i in ids
        )
        tables = {CGROUP: Table({"cgroup": ids}, {name: sums[name][alive].copy() for name in columns})}
        host["hostwide.busy_ns"] += 10**9
        host["hostwide.steal_ns"] += int(3e8 * storm[tick].any())
        tables[HOST] = Table({}, {name: np.array([total], dtype=np.uint64) for name, total in host.items()})
        for table, amounts in blames.items():
            amounts += (storm[tick][pairs[:, 0]] * 10.0 ** rng.uniform(5, 8.3, len(pairs))).astype(np.uint64)
            keep = np.isin(pairs[:, 0], alive)
            keys = {"cgroup": (pairs[keep, 0] + 1).astype(np.uint64), "culprit": (pairs[keep, 1] + 1).astype(np.uint64)}
            tables[table] = Table(keys, {f"{table}_ns": amounts[keep].copy()})
        made.append(Frame(tick * 10**9, BASE_WALL_NS + tick * 10**9, infos, tables))
    return made


def judged(judge: Judge, frames: Sequence[Frame]) -> list[bytes]:
    return [to_json(verdict) for frame in frames for verdict in judge.step(frame)]


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 2**32), st.integers(0, 39))
@example(54458, 3)
def test_resuming_says_byte_for_byte_what_going_on_says(seed: int, at: int) -> None:
    frames = wild(seed, 40)
    judge = Judge(EVERYTHING)
    judged(judge, frames[:at])
    data = judge.checkpoint()
    resumed = Judge.resume(EVERYTHING, data)
    assert resumed.checkpoint() == data
    assert resumed.open_verdicts == judge.open_verdicts
    assert judged(resumed, frames[at:]) == judged(judge, frames[at:])
    assert resumed.checkpoint() == judge.checkpoint()
    assert (resumed.suspects == judge.suspects).all()


def test_the_wild_frames_exercise_every_rule() -> None:
    """Else the property tests prove little."""
    told = [verdict for seed in range(6) for verdict in told_of(wild(seed, 60))]
    speaking = {rule.name for rule in EVERYTHING.rules if not rule.unless_measured}
    assert {verdict.rule for verdict in told} == speaking
    assert {verdict.state for verdict in told} == set(VerdictState)
    assert any(culprit.how == "correlated" for verdict in told for culprit in verdict.culprits)


def told_of(frames: Sequence[Frame], judge_settings: JudgeSettings = EVERYTHING) -> list[Verdict]:
    judge = Judge(judge_settings)
    return [verdict for frame in frames for verdict in judge.step(frame)]


def reordered(frame: Frame, order: Sequence[int]) -> Frame:
    """The same frame with its cgroups in another order, the rows of its tables turned round."""
    place = {identity: number for number, identity in enumerate(order)}
    rows = np.array(sorted(range(len(frame.cgroups)), key=lambda row: place[frame.cgroups[row].id]), dtype=np.intp)
    tables = {name: table.take(np.arange(len(table))[::-1]) for name, table in frame.tables.items() if name != CGROUP}
    tables[CGROUP] = frame.cgroup.take(rows)
    return replace(frame, cgroups=tuple(frame.cgroups[row] for row in rows.tolist()), tables=tables)


def with_idle(frame: Frame) -> Frame:
    """The frame with one more cgroup, first in its rows, that never does anything."""
    info = CgroupInfo(99, "/pods/idle", "idle", workload="idle")
    dense = frame.cgroup
    columns = {name: np.concatenate([np.zeros(1, column.dtype), column]) for name, column in dense.columns.items()}
    keys = {"cgroup": np.concatenate([np.array([99], dtype=np.uint64), dense.ids])}
    return replace(frame, cgroups=(info, *frame.cgroups), tables={**frame.tables, CGROUP: Table(keys, columns)})


def assert_same(one: list[list[Verdict]], other: list[list[Verdict]]) -> None:
    """The same verdicts tick by tick, up to the rounding of sums in another order."""
    assert len(one) == len(other)
    for told, again in zip(one, other, strict=True):
        assert [*map(outline, told)] == [*map(outline, again)]
        for verdict, twin in zip(told, again, strict=True):
            assert verdict.lost_seconds_per_second == pytest.approx(twin.lost_seconds_per_second)
            assert {c.path: c.share for c in verdict.culprits} == pytest.approx(
                {c.path: c.share for c in twin.culprits}, abs=1e-6
            )


def outline(verdict: Verdict) -> tuple[object, ...]:
    """Lines that must be equal to the letter."""
    names = sorted((culprit.path, culprit.how) for culprit in verdict.culprits)
    return verdict.victim, verdict.rule, verdict.state, verdict.cause, verdict.severity, names, sorted(verdict.evidence)


def by_tick(frames: Sequence[Frame], judge_settings: JudgeSettings = EVERYTHING) -> list[list[Verdict]]:
    judge = Judge(judge_settings)
    return [judge.step(frame) for frame in frames]


@settings(deadline=None, max_examples=6)
@given(st.integers(0, 2**32), st.permutations(range(1, 8)))
def test_permuting_containers_permutes_verdicts(seed: int, order: list[int]) -> None:
    frames = wild(seed, 30)
    assert_same(by_tick(frames), by_tick([reordered(frame, order) for frame in frames]))


@settings(deadline=None, max_examples=6)
@given(st.integers(0, 2**32))
def test_an_idle_container_changes_nothing(seed: int) -> None:
    frames = wild(seed, 30)
    assert_same(by_tick(frames), by_tick([with_idle(frame) for frame in frames]))


def stretched(frame: Frame, factor: int) -> Frame:
    """The frame of a node on which everything takes `factor` times as long; gauges and sizes stand."""
    timed = {
        name: column * np.uint64(factor) if BY_COLUMN[name].kind is MetricKind.COUNTER else column
        for name, column in frame.cgroup.columns.items()
    }
    tables = {
        name: Table(table.keys, {key: column * np.uint64(factor) for key, column in table.columns.items()})
        for name, table in frame.tables.items()
        if name != CGROUP
    }
    tables[CGROUP] = Table(frame.cgroup.keys, timed)
    return replace(frame, monotonic_ns=frame.monotonic_ns * factor, tables=tables)


SLOW_TICK = 16
"""Seconds of a tick whose five are more than the minute in which a verdict that comes back is held for longer."""


def opened_in_ticks_of(seconds: int, frames: Sequence[Frame]) -> list[list[Verdict]]:
    """Verdicts that open where a tick lasts so long and every duration of the rules is as many ticks."""
    judge_settings = JudgeSettings(
        span_seconds=JudgeSettings().span_seconds * seconds,
        rules=tuple(replace_rule(rule, hold_seconds=5.0 * seconds) for rule in EVERYTHING.rules),
        baselines=EVERYTHING.baselines,
        node_type="cpu",
    )
    told = by_tick([stretched(frame, seconds) for frame in frames], judge_settings)
    return [[verdict for verdict in tick if verdict.state is VerdictState.OPEN] for tick in told]


@settings(deadline=None, max_examples=6)
@given(st.integers(0, 2**32), st.sampled_from([2, 4, 16]))
@example(4299796, 16)
def test_scaling_time_changes_nothing(seed: int, factor: int) -> None:
    """Rates are what counts: in ticks of twice the length with twice the growth, the same verdicts stand.

    Holds of less than a minute are left out: pulses come back after seconds, however long a tick is.
    """
    frames = wild(seed, 24, mortal=0.0)
    assert_same(opened_in_ticks_of(SLOW_TICK, frames), opened_in_ticks_of(SLOW_TICK * factor, frames))


def replace_rule(rule: Rule, **changes: object) -> Rule:
    return msgspec.structs.replace(rule, **changes)


@settings(deadline=None, max_examples=6)
@given(st.integers(0, 2**32))
def test_shares_are_not_negative_and_sum_to_at_most_the_loss(seed: int) -> None:
    for verdict in told_of(wild(seed, 40)):
        assert all(culprit.share > 0 for culprit in verdict.culprits)
        assert sum(culprit.share for culprit in verdict.culprits) <= 1 + 1e-9
        assert 0 <= verdict.confidence <= 1 + 1e-9
        assert verdict.victim not in {culprit.path for culprit in verdict.culprits}


def test_settings_survive_being_recorded() -> None:
    for code in (msgspec.json, msgspec.msgpack):
        assert code.decode(code.encode(EVERYTHING), type=JudgeSettings) == EVERYTHING
        assert code.decode(code.encode(JudgeSettings()), type=JudgeSettings) == JudgeSettings()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "not a checkpoint", id="empty"),
        pytest.param(msgspec.msgpack.encode({"schema": "koord.judge/v0"}), "schema is 'koord.judge/v0'", id="old"),
        pytest.param(msgspec.msgpack.encode({"schema": "koord.judge/v1"}), "not a checkpoint", id="half"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(CheckpointRefused, match=reason):
        Judge.resume(EVERYTHING, data)


def test_a_damaged_state_is_refused() -> None:
    judge = Judge(EVERYTHING)
    judged(judge, wild(1, 5))
    document = msgspec.msgpack.decode(judge.checkpoint())
    del document["engine"]["memory"]["held"]
    with pytest.raises(CheckpointRefused, match="damaged: KeyError"):
        Judge.resume(EVERYTHING, msgspec.msgpack.encode(document))


def test_a_state_of_a_version_that_knew_less_is_resumed() -> None:
    judge, frames = Judge(EVERYTHING), wild(1, 40)
    judged(judge, frames[:30])
    document = msgspec.msgpack.decode(judge.checkpoint())
    for name in ("earlier_seconds", "looked_ns", "rested"):
        del document["engine"]["memory"][name]
    assert judged(Judge.resume(EVERYTHING, msgspec.msgpack.encode(document)), frames[30:])


def test_other_settings_keep_what_still_fits() -> None:
    judge = Judge(EVERYTHING)
    judged(judge, wild(1, 30))
    kept = EVERYTHING.rules[0]
    fewer = msgspec.structs.replace(EVERYTHING, rules=(kept,), cpi2=None, baselines=BaselinePolicy(max_cells=9))
    resumed = Judge.resume(fewer, judge.checkpoint())
    assert resumed.open_verdicts == tuple(v for v in judge.open_verdicts if v.rule == kept.name)
    assert resumed.baselines.policy.max_cells == 9
    assert judged(resumed, wild(1, 40)[30:])


def test_a_clock_that_starts_anew_judges_on() -> None:
    frames = wild(1, 40)
    judge = Judge(EVERYTHING)
    judged(judge, frames[20:])
    again = Judge.resume(EVERYTHING, judge.checkpoint())
    told = judged(again, [replace(frame, wall_ns=frame.wall_ns + 10**12) for frame in frames[:20]])
    assert told


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        pytest.param({"span_seconds": 0.0}, "span_seconds", id="span"),
        pytest.param(
            {"rules": (Rule(name="r", any_of=("own_quota",), threshold=0.0),)}, "rule r: threshold", id="loss"
        ),
        pytest.param({"rules": (Rule(name="r", any_of=("own_quota",), ticks=9),)}, "rule r: ticks", id="ticks"),
        pytest.param({"rules": (Rule(name="r", any_of=("x",)),)}, "rule r: any_of", id="symptom"),
        pytest.param({"rules": (Rule(name="r", any_of=("own_quota",)),) * 2}, "rule r: name", id="twice"),
        pytest.param({"rules": (Rule(name="r", any_of=("own_quota",), hold_seconds=-1),)}, "hold_seconds", id="hold"),
        pytest.param({"baselines": BaselinePolicy(half_life_seconds=0.0)}, "half_life_seconds", id="half-life"),
        pytest.param({"cpi2": Cpi2Policy(age_weight=2.0)}, "age_weight", id="cpi2"),
        pytest.param({"cpi2": Cpi2Policy(sample_seconds=60.0)}, "sample_seconds", id="cpi2-never-rests"),
        pytest.param({"suspicion": SuspicionPolicy(threshold_ratio=0.0)}, "threshold_ratio", id="suspicion"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        Judge(JudgeSettings(**wrong))


def test_workloads_long_gone_make_room() -> None:
    hour = 3600 * 10**9
    start = BASE_WALL_NS // hour * hour + hour // 2
    judge = Judge(JudgeSettings())
    observed = BaselineSample([WorkloadKey("gone")], np.ones(1), np.zeros(1, dtype=np.int64), {"cpi": np.ones(1)})
    judge.baselines.learn(observed, start / 1e9 - 30 * 86_400)
    lengths = []
    for tick, wall_ns in enumerate((start, start + hour // 4, start + hour)):
        table = Table({"cgroup": np.empty(0, dtype=np.uint64)}, {})
        judge.step(Frame(tick * 10**9, wall_ns, (), {CGROUP: table}))
        lengths.append(len(judge.baselines))
    assert lengths == [1, 1, 0]
