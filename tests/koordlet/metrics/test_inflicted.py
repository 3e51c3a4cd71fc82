"""What a cgroup does to all others is whole, however many they are and whichever is the worst of each."""

import re

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from api.frame import KERNEL_ID, Table
from api.window import Window
from koordlet.config import MetricsSettings
from koordlet.metrics.cgroups import CgroupMetrics
from koordlet.metrics.inflicted import BY_AGENT, INFLICTED, Inflicted
from koordlet.tick import Tick
from tests.frames import cgroup_info, make_frame

PATHS = {number: f"/c{number}" for number in range(1, 101)}
MS = 10**6


def exposed(blame: dict[tuple[int, int], int], *, own: str = "", max_cgroups: int = 200) -> dict[str, float]:
    """Series of the two families after two ticks with so much blame each, by labels."""
    metrics = CgroupMetrics(
        MetricsSettings(max_cgroups=max_cgroups, culprits_per_victim=2),
        lambda identity: cgroup_info(identity, PATHS[identity]) if identity in PATHS else None,
        {},
        own,
    )
    for second in (0, 1):
        frames = [
            make_frame(
                at,
                PATHS,
                {"cpu.oncpu_ns": [number * at * MS for number in PATHS]},
                {pair: amount * at for pair, amount in blame.items()},
            )
            for at in (second, second + 1)
        ]
        metrics.update(Tick.of(Window(tuple(frames))), capabilities={})
    registry = CollectorRegistry()
    registry.register(metrics)
    page = generate_latest(registry).decode()
    return {
        labels: float(value)
        for labels, value in re.findall(rf"^(?:{INFLICTED}|{BY_AGENT})_total(\{{.*\}}) (\S+)$", page, re.MULTILINE)
    }


def of(path: str) -> str:
    name = path.removeprefix("/")
    return f'{{cgroup="{path}",name="{name}",qos="",resource="cpu"}}'


def test_a_cgroup_that_costs_many_others_a_little_each_has_the_sum() -> None:
    """Each victim has three worse culprits, so no series of pairs names it."""
    worse = {(victim, culprit): 9 * MS for victim in range(5, 101) for culprit in (1, 2, 3) if culprit != victim}
    found = exposed(worse | {(victim, 4): MS for victim in range(5, 101)})
    assert found[of("/c4")] == pytest.approx(96 * 2e-3)
    assert len(found) == 4


def test_the_kernel_has_a_row_and_what_a_cgroup_does_to_itself_is_left_out() -> None:
    found = exposed({(1, KERNEL_ID): 3 * MS, (2, 2): 5 * MS})
    assert found == {of("[kernel]"): pytest.approx(6e-3)}


def test_culprits_without_series_are_other_and_the_sum_is_whole() -> None:
    found = exposed({(1, culprit): MS for culprit in range(2, 101)}, max_cgroups=10)
    assert len(found) <= 11
    assert found[of("other")] == pytest.approx(sum(found.values()) - (len(found) - 1) * 2e-3)
    assert sum(found.values()) == pytest.approx(99 * 2e-3)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        pytest.param("/c7", {'{resource="cpu"}': 4e-3}, id="own-cgroup"),
        pytest.param("/", {}, id="root"),
        pytest.param("", {}, id="not-known"),
    ],
)
def test_what_the_agent_does_to_others_is_told_apart(own: str, expected: dict[str, float]) -> None:
    found = exposed({(1, 7): 2 * MS, (2, 8): MS}, own=own)
    assert {labels: value for labels, value in found.items() if "cgroup" not in labels} == pytest.approx(expected)


def test_a_seat_that_is_given_away_starts_anew() -> None:
    inflicted = Inflicted(2, lambda _: False)
    pairs = Table({"cgroup": np.array([1], np.uint64), "culprit": np.array([2], np.uint64)}, {})
    inflicted.add("cpu.blame", pairs, np.array([0.5]), {2: 1})
    labels = {1: ("", "", "", "/two", "two", "")}
    assert [len(family.samples) for family in inflicted.families(labels)] == [1]
    inflicted.forget(1)
    assert list(inflicted.families(labels)) == []
