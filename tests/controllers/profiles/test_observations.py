"""Sums from reports: planted figures are found, hostile reports tell nothing, and nothing grows without bound."""

from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.stats import spearmanr

from api.crds.node_metric import PodUsage
from api.kube.interference import EXTENSION_WORKLOAD, RESOURCES, WireUsualValues
from api.kube.times import rfc3339
from cluster import DeltaType, Key, StoreDelta
from controllers.kinds import NODE
from controllers.profiles import observations, pair_sums, usual_values
from controllers.profiles.merge import ALL, traits
from controllers.profiles.observations import HALF_LIFE_SECONDS, LONGEST_SECONDS, Observations
from tests.capacity import NOW, a_node, a_report
from tests.controllers.profiles.fleet import CORES, PERIOD, added, at, name_of, pods_of, report, reports, usual

WORKLOADS = 12


LEAST_LOST = 0.05
"""Loss from which a pod has a verdict, where nodes state what is waited."""


def planted(nodes: int = 30, turns: int = 30, *, waits: bool = False) -> tuple[Observations, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    sensitivity, strength = draw.lognormal(-1.5, 0.8, WORKLOADS), draw.lognormal(0.0, 0.6, WORKLOADS)
    found = Observations()
    found.value()
    added(found, nodes)
    for node in range(nodes):
        here = draw.choice(WORKLOADS, 6, replace=False)
        for turn in range(turns):
            cores = {int(number): float(draw.uniform(0.5, 4)) for number in here}
            verdicts: dict[int, list[dict[str, Any]]] = {}
            waited: dict[int, object] = {}
            for victim in here:
                harm = {
                    other: float(sensitivity[victim] * strength[other] * cores[other] / CORES * draw.lognormal(0, 0.3))
                    for other in here
                    if other != victim
                }
                lost = sum(harm.values())
                named = sorted(harm, key=lambda each: -harm[each])
                waited[int(victim)] = lost
                if waits and lost < LEAST_LOST:
                    continue
                verdicts[int(victim)] = [
                    {
                        "resource": "cpu",
                        "culprits": [name_of(int(each)) for each in named],
                        "shares": [harm[each] / lost for each in named],
                        "lostSecondsPerSecond": lost,
                    }
                ]
            report(
                found,
                node,
                a_report(f"n{node}", pods=pods_of(cores, verdicts, waited if waits else None), updated=at(turn)),
            )
    return found, sensitivity, strength


def test_who_is_sensitive_and_who_is_aggressive_is_found() -> None:
    found, sensitivity, strength = planted()
    seen = found.value()
    numbers = [int(name.rpartition("w")[2]) for name in seen.workloads]
    each = traits(seen.sums.of(0), len(numbers), 1)
    assert spearmanr(sensitivity[numbers], each.sensitivity.value)[0] >= 0.95
    assert spearmanr(strength[numbers], each.strength.value)[0] >= 0.95
    assert not each.sensitivity.correlated.any()
    assert not len(seen.sums.of(3).victims), "no other resource"


def test_losses_too_small_for_a_verdict_are_known_by_what_is_waited() -> None:
    found, sensitivity, strength = planted(waits=True)
    seen = found.value()
    numbers = [int(name.rpartition("w")[2]) for name in seen.workloads]
    sums = seen.sums.of(0)
    pairs, alone = sums.seconds[sums.neighbours >= 0].sum(), sums.seconds[sums.neighbours == ALL].sum()
    assert pairs < 5 * alone, "most of the time there was no verdict"
    each = traits(sums, len(numbers), 1)
    assert spearmanr(sensitivity[numbers], each.sensitivity.value)[0] >= 0.95
    assert spearmanr(strength[numbers], each.strength.value)[0] >= 0.9
    assert not each.sensitivity.correlated.any(), "what was waited for others is measured"
    scale = strength.mean()
    assert np.median(each.sensitivity.value / (sensitivity[numbers] * scale)) == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("waited", ["x", True, float("nan"), float("inf")])
def test_odd_waits_tell_nothing(waited: object) -> None:
    found = Observations()
    found.value()
    added(found, 1)
    for turn in range(3):
        report(found, 0, a_report("n0", updated=at(turn), pods=pods_of({0: 1.0, 1: 2.0}, {}, {0: waited})))
    assert len(found.value().sums) == 0


def test_what_was_told_weighs_half_after_a_week() -> None:
    found, _, _ = planted(nodes=3, turns=4)
    before = found.value().sums.of(0).seconds.sum()
    for step in range(1, round(HALF_LIFE_SECONDS / LONGEST_SECONDS) + 1):
        for node in range(3):
            report(found, node, a_report(f"n{node}", updated=at(3 + step * LONGEST_SECONDS / PERIOD)))
    assert found.value().sums.of(0).seconds.sum() == pytest.approx(before / 2, rel=0.01)


def test_a_clock_that_is_ahead_does_not_age_what_others_told() -> None:
    found = Observations()
    found.value()
    added(found, 2)
    draw = np.random.default_rng(3)
    for turn, node, ahead in ((0, 0, 0), (0, 1, 0), (1, 0, 0), (2, 1, 60 * 1440), (3, 1, 4)):
        found.now = NOW + turn * PERIOD
        stated = {"usualValues": [usual(1, 0.02, draw)]}
        report(found, node, a_report(f"n{node}", updated=at(turn + ahead), extensions=stated))
    (value,) = found.value().usual.of(name_of(1), NOW + 3 * PERIOD)
    assert value.weight == pytest.approx(600, rel=0.01), "two statements; the one from far ahead is left out"
    (heard,) = found.value().heard_seconds.values()
    assert heard == NOW + 3 * PERIOD


def test_time_before_the_first_loss_counts_too() -> None:
    found = Observations()
    found.value()
    added(found, 1)
    verdict = {"resource": "memory", "culprits": [name_of(1)], "shares": [1.0], "lostSecondsPerSecond": 0.5}
    turns = 1200
    for turn in range(turns):
        verdicts = {0: [verdict]} if turn == turns // 2 else {}
        report(found, 0, a_report("n0", updated=at(turn), pods=pods_of({0: 1.0, 1: 2.0}, verdicts)))
    sums = found.value().sums.of(RESOURCES.index("memory"))
    assert sums.seconds.sum() == pytest.approx((turns - 1) * PERIOD, rel=0.1), "aged by up to a day"


def test_victims_without_a_loss_make_a_tenth_of_the_rows_and_weigh_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Observations()
    found.value()
    added(found, 1)
    verdict = {"resource": "cpu", "culprits": [name_of(1)], "shares": [1.0], "lostSecondsPerSecond": 0.5}
    told: list[float] = []
    monkeypatch.setattr(found.value().sums, "add", lambda each, *_: told.append(each.seconds))
    turns = 2000
    for turn in range(turns):
        verdicts = {0: [verdict]} if turn == 1 else {}
        report(found, 0, a_report("n0", updated=at(turn), pods=pods_of({0: 1.0, 1: 2.0}, verdicts)))
    assert len(told) == pytest.approx(turns / 10, rel=0.2)
    assert sum(told) == pytest.approx(turns * PERIOD, rel=0.03)


def test_the_rows_of_a_report_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "MOST_ROWS", 10)
    found, _, _ = planted(nodes=1, turns=2)
    assert 0 < len(found.value().sums) <= 10


UNREADABLE: dict[str, dict[str, Any]] = {
    "number": {"podsMetric": [{"name": "x", "namespace": "d", "extensions": {"workload": 7}}]},
    "short": {"podsMetric": [{"name": "x", "namespace": "d", "extensions": {"workload": "a/b"}}]},
    "no time": {"updateTime": "no time"},
    "text": {"extensions": {"usualValues": "none"}},
    "no signal": {"extensions": {"usualValues": [{"workload": name_of(1)}]}},
    "far": {
        "extensions": {"usualValues": [{"workload": name_of(1), "signal": "cpi", "points": [10**9] * 16, "weight": 9}]}
    },
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_report_that_cannot_be_read_tells_nothing(name: str) -> None:
    status = {"updateTime": at(2)} | UNREADABLE[name]
    found = Observations()
    found.value()
    added(found, 1)
    report(found, 0, a_report("n0", updated=at(0)))
    report(found, 0, msgspec.convert({"metadata": {"name": "n0"}, "status": status}, type(a_report())))
    assert len(found.value().sums) == 0
    assert len(found.value().usual) == 0


def test_losses_beyond_all_reason_are_bounded_by_time_and_share() -> None:
    found = Observations()
    found.value()
    added(found, 1)
    verdict = {
        "resource": "cpu",
        "culprits": [name_of(1), name_of(1)],
        "shares": [float("nan"), 7.0],
        "lostSecondsPerSecond": 0.5,
    }
    report(found, 0, a_report("n0", updated=at(0)))
    later = a_report("n0", updated=at(10_000), pods=pods_of({0: 1.0, 1: 1e9}, {0: [verdict]}))
    report(found, 0, later)
    sums = found.value().sums.of(0)
    assert sums.seconds.tolist() == [300.0]
    assert sums.lost[0] == pytest.approx(150.0)
    assert sums.pressure[0] == pytest.approx(300.0)


def test_a_node_that_is_gone_leaves_no_shifts() -> None:
    found = Observations()
    shifts = found.value().usual.shifts
    for workload in range(5):
        for _ in range(3):
            shifts.add("n0", name_of(workload), 4.0, NOW)
    assert set(shifts.found(NOW)) == {"n0"}
    found.apply(NODE, [StoreDelta(DeltaType.DELETED, Key("", "n0"), a_node("n0", CORES), None)])
    assert not shifts.found(NOW)


def test_what_there_is_no_room_for_is_counted_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pair_sums, "MOST", 20)
    monkeypatch.setattr(usual_values, "MOST_CELLS", 3)
    found, _, _ = planted(nodes=2, turns=3)
    assert len(found.value().sums) == 20
    assert found.value().sums.dropped > 0
    draw = np.random.default_rng(2)
    for each in reports(0, 30, draw):
        report(found, 0, each)
    assert len(found.value().usual) == 3
    assert found.value().usual.refused > 0
    found.value()
    assert sorted(record.getMessage().split(" ", 1)[1].partition(" that")[0] for record in caplog.records) == [
        "pairs",
        "usual values",
    ]


def test_usual_values_add_up_over_nodes_and_survive_a_restart() -> None:
    found = Observations()
    found.value()
    added(found, 4)
    draw = np.random.default_rng(3)
    for node in range(4):
        for turn in range(3):
            report(
                found, node, a_report(f"n{node}", updated=at(turn), extensions={"usualValues": [usual(1, 0.02, draw)]})
            )
    (published,) = found.value().usual.of(name_of(1), NOW + 3 * PERIOD)
    assert published.weight == pytest.approx(8 * 300, rel=0.01)
    middle = 2.0 ** (-20 + np.median(published.points) / 4)
    assert middle == pytest.approx(0.02, rel=0.2)
    fresh = Observations().value().usual
    fresh.restore(name_of(1), [published], NOW + 3 * PERIOD)
    (again,) = fresh.of(name_of(1), NOW + 3 * PERIOD)
    assert again.points == published.points


DAY = 86_400.0


def test_workloads_that_nothing_names_any_more_give_up_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new job each day for three months, where there is room for thirty workloads."""
    monkeypatch.setattr(observations, "MOST_WORKLOADS", 30)
    monkeypatch.setattr(observations, "AGED_EVERY_SECONDS", 300.0)
    found = Observations()
    found.value()
    added(found, 1)
    for day in range(90):
        pods = pods_of({1: 4.0, 100 + day: 2.0}, {}, {1: 0.5, 100 + day: 0.25})
        report(found, 0, a_report("n0", pods=pods, updated=rfc3339(NOW + day * DAY)))
    seen = found.value()
    assert seen.refused == 0
    known = [name for name in seen.workloads if name]
    assert set(known) == {name_of(1), *(name_of(100 + day) for day in range(74, 90))}
    assert len(seen.workloads) <= 30
    assert set(seen.heard_seconds) == set(known)
    sums = seen.sums.of(0)
    lost = dict(zip(sums.victims.tolist(), (sums.lost / sums.seconds).tolist(), strict=True))
    assert {seen.workloads[number]: part for number, part in lost.items()} == pytest.approx(
        {name: 0.5 if name == name_of(1) else 0.25 for name in known}
    )


def test_names_that_a_node_invents_take_no_learned_workload_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "MOST_WORKLOADS", 30)
    monkeypatch.setattr(observations, "AGED_EVERY_SECONDS", 300.0)
    found = Observations()
    found.value()
    added(found, 1)
    pods = pods_of({1: 4.0, 2: 2.0}, {}, {1: 0.5, 2: 0.25})
    report(found, 0, a_report("n0", pods=pods, updated=rfc3339(NOW)))
    report(found, 0, a_report("n0", pods=pods, updated=rfc3339(NOW + PERIOD)))
    for number in range(100):
        found._hear(f"Job/ci/run-{number}", NOW + PERIOD)
    found._forget(NOW - DAY)
    seen = found.value()
    assert {name for name in seen.workloads if name} == {name_of(1), name_of(2)}
    assert len(seen.heard_seconds) <= 30


class Counted(str):
    """A name that counts how often it is looked up, or looked at in a comparison of many names."""

    looked_up = 0

    def __hash__(self) -> int:
        Counted.looked_up += 1
        return super().__hash__()


@pytest.mark.parametrize("learned", [pytest.param(999, id="one-unlearned"), pytest.param(1000, id="all-learned")])
def test_a_name_that_there_is_no_room_for_costs_no_look_at_all_others(
    monkeypatch: pytest.MonkeyPatch, learned: int
) -> None:
    monkeypatch.setattr(observations, "MOST_WORKLOADS", 1000)
    found = Observations()
    found.value()
    added(found, 1)
    names = [Counted(f"Job/ci/run-{number}") for number in range(1000)]
    for name in names:
        found._hear(name, NOW)
    for name in names[:learned]:
        usage = PodUsage(name="p", namespace="ci", extensions={EXTENSION_WORKLOAD: name})
        assert found._pod(usage, 4.0) is not None
    before = Counted.looked_up
    for number in range(100):
        found._hear(f"Job/ci/more-{number}", NOW + number)
    assert Counted.looked_up - before <= 2 * 100
    kept = set(found.value().heard_seconds)
    assert kept >= set(names[:learned])
    assert ("Job/ci/more-99" in kept) == (learned == 999)
    assert len(kept) == 1000


def test_the_name_that_was_not_heard_for_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "MOST_WORKLOADS", 3)
    found = Observations()
    for name, time in (("a", 0.0), ("b", 1.0), ("c", 2.0), ("a", 3.0), ("d", 4.0), ("e", 5.0)):
        found._hear(f"Job/ci/{name}", NOW + time)
    assert set(found.value().heard_seconds) == {"Job/ci/a", "Job/ci/d", "Job/ci/e"}
    found._forget(NOW + 5.0)
    for name, time in (("f", 6.0), ("g", 7.0), ("h", 8.0)):
        found._hear(f"Job/ci/{name}", NOW + time)
    assert set(found.value().heard_seconds) == {"Job/ci/f", "Job/ci/g", "Job/ci/h"}


def test_usual_values_of_workloads_that_are_gone_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usual_values, "MOST_CELLS", 100)
    values, draw = usual_values.FleetValues(), np.random.default_rng(5)
    for day in range(90):
        for number in range(5):
            told = msgspec.convert(usual(5 * day + number, 0.02, draw), WireUsualValues)
            values.add(told, "", NOW + day * DAY)
            assert values.of(told.workload, NOW + day * DAY)
    assert values.refused == 0
    assert len(values) <= 100
    assert len(list(values.workloads())) == len(values)


def test_shifts_of_workloads_that_are_gone_are_forgotten() -> None:
    found = Observations()
    shifts = found.value().usual.shifts
    for day in range(50):
        for number in range(20):
            shifts.add("n0", f"Job/ci/run-{day}-{number}", 4.0, NOW + day * DAY)
        shifts.add("n0", name_of(1), 4.0, NOW + day * DAY)
        assert len(shifts) <= 2 * 64
    assert shifts._shifts["n0"][name_of(1)].statements == 50
