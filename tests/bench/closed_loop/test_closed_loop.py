"""The closed loop on a small cluster: what must hold whatever the figures are."""

import pytest

from bench.closed_loop.__main__ import gains, plot, report
from bench.closed_loop.rules import ALONE, DEFAULTS, KOORD
from bench.closed_loop.run import Outcome, Run
from bench.closed_loop.world import world

NODES = 8


def lived(rules: object, scale: float = 1.0, seed: int = 1) -> Outcome:
    return Run(rules, world(NODES, seed), NODES, seed, scale).run(1.0)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return [lived(ALONE), lived(DEFAULTS), lived(KOORD), lived(DEFAULTS, 2.0), lived(KOORD, 2.0)]


def test_batch_work_uses_what_services_leave_and_costs_them(outcomes: list[Outcome]) -> None:
    alone, defaults, koord, worse, restrained = outcomes
    assert (alone.work_core_hours, alone.lost_part, alone.moved_batch) == (0.0, 0.0, 0)
    assert alone.utilisation < defaults.utilisation < 0.66, "suppressed at 65 %"
    assert koord.lost_part < defaults.lost_part
    assert worse.lost_part == pytest.approx(2 * defaults.lost_part, rel=0.2)
    assert worse.utilisation == pytest.approx(defaults.utilisation), "rules that know nothing of harm change nothing"
    assert restrained.work_core_hours < koord.work_core_hours
    both = Run(DEFAULTS, world(NODES, 1), NODES, 1, 1.0, 2.0).run(1.0)
    assert both.at(2.0).lost_part == pytest.approx(worse.lost_part), "one run tells of both"


def test_equal_seeds_give_equal_runs(outcomes: list[Outcome]) -> None:
    again = lived(KOORD)
    assert (again.use, again.lost) == (outcomes[2].use, outcomes[2].lost)


def test_what_is_told_and_drawn(outcomes: list[Outcome], tmp_path: object) -> None:
    text = report(outcomes)
    assert "| x1 | koord |" in text
    assert gains([Outcome("koord", 1.0, [0.7], [1.0], [100.0]), Outcome("other", 1.0, [0.5], [1.0], [100.0])]) == [
        "harm x1: +20.0 points against other, the best that loses no more"
    ]
    path = tmp_path / "plot.png"  # type: ignore[operator]
    plot(outcomes, path)
    assert path.read_bytes().startswith(b"\x89PNG")
