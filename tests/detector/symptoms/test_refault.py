"""Refaults: the loss of one tick."""

import pytest

from api.window import Window
from detector.judging.judge import Judge, JudgeSettings
from detector.symptoms.refault import Refault
from detector.view import View
from tests.detector.symptoms.ticks import MS, lost
from tests.frames import make_frame

LIMIT = "memory.stall_own_limit_ns"


@pytest.mark.parametrize(("pages", "expected"), [(0, 0.0), (3000, 0.3), (50_000, 1.0)])
def test_each_page_costs_a_read(pages: int, expected: float) -> None:
    assert lost(Refault(), {"memstat.refaults": pages, LIMIT: 0}) == pytest.approx(expected)


def test_refaults_under_a_limit_are_not_the_nodes() -> None:
    assert lost(Refault(), {"memstat.refaults": 5000, LIMIT: 100 * MS}) == 0.0


@pytest.mark.parametrize(
    ("stalled_ms", "taken", "held", "expected"),
    [
        pytest.param(9, [1, 0], 10e6, 0.0, id="one page of its own"),
        pytest.param(5, [0, 1], 10e6, 0.0, id="one page of another"),
        pytest.param(5, [0, 4096], 63e6, 0.0, id="a short node, and its limit is full"),
        pytest.param(5, [0, 4096], 10e6, 0.5, id="a short node, far from its limit"),
        pytest.param(0, [0, 4096], 63e6, 0.5, id="a short node, and nothing reclaims under its full limit"),
    ],
)
def test_cheap_reclaim_under_the_own_limit_takes_the_pages_unless_the_node_is_short(
    stalled_ms: float, taken: list[float], held: float, expected: float
) -> None:
    found = losses(
        {1: "/web", 2: "/thief"},
        memstat__refaults=[5000, 0],
        memory__stall_own_limit_ns=[stalled_ms * MS, 0],
        memory__pressure_pages=taken,
        memstat__limit_bytes=[64e6, float("inf")],
        memstat__usage_bytes=[held, 0],
    )
    assert found[0] == pytest.approx(expected)


def losses(paths: dict[int, str], **grown: list[float]) -> list[float]:
    """What each cgroup loses in a second in which its columns grew so; names have `__` for the dot."""
    columns = {name.replace("__", "."): row for name, row in grown.items()}
    frames = [make_frame(t, paths, {name: [each * t for each in row] for name, row in columns.items()}) for t in (0, 1)]
    signal = Refault().sense(View(Window(frames), Refault.columns))
    assert signal is not None
    return [float(each) for each in signal.lost]


def test_the_part_of_own_pages_is_no_neighbours_doing() -> None:
    alone = {"memory__stall_own_limit_ns": [0.0, 0.0], "memstat__refaults": [5000.0, 0.0]}
    taken = losses({1: "/web", 2: "/thief"}, **alone, memory__pressure_pages=[10_000.0, 30_000.0])
    assert taken[0] == pytest.approx(0.5 * 0.75)
    assert losses({1: "/web", 2: "/thief"}, **alone, memory__pressure_pages=[0.0, 0.0])[0] == pytest.approx(0.5)


def test_who_takes_pages_is_named_in_the_second_tick_even_who_always_did() -> None:
    judge, said = Judge(JudgeSettings()), []
    for second in range(8):
        columns = {
            "memstat.refaults": [5000 * max(second - 5, 0), 0, 0],
            "memory.stall_own_limit_ns": [0, 0, 0],
            "memory.pressure_pages": [1000 * second, 90_000 * second, 9000 * second],
        }
        lines = judge.step(make_frame(second, {1: "/web", 2: "/thief", 3: "/other"}, columns))
        said += [each for each in lines if each.rule != "refaults"]  # of a symptom that may be installed besides
    assert [(each.rule, each.state, each.time % 100) for each in said] == [("refault", "open", 7.0)]
    assert [each.path for each in said[0].culprits] == ["/thief", "/other"]
    assert said[0].culprits[0].share == pytest.approx(90 / 99)
    assert said[0].confidence == 0.0
