"""Triage policy: the order of levels down and up, and invariants of each level."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.frame import CgroupInfo
from koordlet.triage.policy import (
    MOST_PATIENCE,
    PATIENCE,
    Budget,
    Descendants,
    Ids,
    Level,
    TriagePolicy,
    TriageSettings,
)

IDS = np.arange(1000, 1000 + 40 * 32, 32, dtype=np.uint64)
NONE = np.zeros(len(IDS), dtype=np.bool_)
LOST = np.arange(len(IDS), dtype=np.float64)


def suspects(*rows: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    found = NONE.copy()
    found[list(rows)] = True
    return found


def on_level(level: Level, **given_settings: float) -> TriagePolicy:
    triage = TriagePolicy(TriageSettings(**given_settings), cpus=2)  # type: ignore[arg-type]
    triage.budget.level = level
    return triage


def test_the_budget_is_a_part_of_all_cpus() -> None:
    assert TriagePolicy(TriageSettings(cpu_budget_ratio=0.005), cpus=64).budget.millicores == pytest.approx(320)


def test_levels_are_given_up_one_by_one_and_never_below_rest() -> None:
    budget = Budget(10.0)
    assert [budget.measured(11.0) for _ in range(6)] == [1, 2, 3, 4, 4, 4]


def test_a_level_comes_back_after_several_calm_measurements_in_a_row() -> None:
    budget = Budget(10.0, Level.SUSPECTS)
    assert [budget.measured(used) for used in (4.0, 4.0, 6.0, 4.0, 4.0, 4.0)] == [2, 2, 2, 2, 2, 1]


def test_between_well_below_and_the_budget_nothing_moves() -> None:
    budget = Budget(10.0, Level.ROTATION)
    assert {budget.measured(used) for used in (5.0, 9.9, 10.0, 7.0) * 20} == {Level.ROTATION}


def test_a_try_that_was_too_dear_makes_the_next_one_wait_twice_as_long() -> None:
    cost = {Level.ROTATION: 20.0, Level.SUSPECTS: 1.0}
    budget = Budget(10.0, Level.SUSPECTS)
    levels = [budget.measured(cost[budget.level]) for _ in range(400)]
    tries = [at for at, level in enumerate(levels) if level is Level.ROTATION]
    waits = np.diff(tries).tolist()
    assert waits[:4] == [1 + 2 * PATIENCE, 1 + 4 * PATIENCE, 1 + 8 * PATIENCE, 1 + 16 * PATIENCE]
    assert max(waits) <= 1 + MOST_PATIENCE


def test_without_a_budget_the_expensive_probes_rest_for_ever() -> None:
    budget = Budget(0.0)
    assert {budget.measured(0.0) for _ in range(100)} == {Level.NOTHING}


def test_at_an_unknown_cost_no_more_than_suspects() -> None:
    budget = Budget(10.0)
    assert budget.unmeasurable() is Level.SUSPECTS
    budget.level = Level.WORST
    assert budget.unmeasurable() is Level.WORST
    assert [budget.measured(1.0) for _ in range(PATIENCE)][-1] is Level.SUSPECTS


@given(
    st.lists(st.floats(0, 100), min_size=5, max_size=5).map(lambda costs: sorted(costs, reverse=True)),
    st.floats(1, 50),
)
def test_steady_costs_end_within_the_budget_or_at_rest_most_of_the_time(costs: list[float], budget: float) -> None:
    costs[Level.NOTHING] = 0.0
    control = Budget(budget)
    used = []
    for _ in range(600):
        used.append(costs[control.level])
        control.measured(used[-1])
    over = [cost > budget for cost in used[300:]]
    assert sum(over) <= len(over) * 0.05


def test_with_budget_enough_everybody_is_looked_at() -> None:
    triage = on_level(Level.EVERYTHING)
    assert triage.focus(IDS, suspects(3), LOST) is None
    assert triage.shed_ticks == 0


def test_suspects_only() -> None:
    triage = on_level(Level.SUSPECTS)
    assert _rows(triage.focus(IDS, suspects(3, 7), LOST)) == [3, 7]
    assert triage.shed_ticks == 1


def test_the_worst_by_what_they_lose() -> None:
    triage = on_level(Level.WORST, worst_cgroups=2)
    assert _rows(triage.focus(IDS, suspects(3, 9, 7), LOST)) == [7, 9]


def test_at_rest_nobody() -> None:
    assert _rows(on_level(Level.NOTHING).focus(IDS, suspects(3), LOST)) == []


def test_a_suspect_lingers_and_then_leaves() -> None:
    triage = on_level(Level.SUSPECTS, linger_ticks=2)
    told = [_rows(triage.focus(IDS, marks, LOST)) for marks in (suspects(3), NONE, NONE, NONE)]
    assert told == [[3], [3], [3], []]


def test_suspicion_passes_down_but_not_from_the_root_nor_to_the_side() -> None:
    paths = ["/", "/pod", "/pod/a", "/pod/a/deep/er", "/pods", "/other", "/pod/b"]
    infos = [CgroupInfo(row, path, path) for row, path in enumerate(paths)]

    def below(*rows: int) -> list[int]:
        marked = np.zeros(len(paths), dtype=np.bool_)
        marked[list(rows)] = True
        return np.flatnonzero(Descendants(infos).spread(marked)).tolist()

    assert below(1) == [1, 2, 3, 6]
    assert below(2) == [2, 3]
    assert below(0) == [0]
    assert below() == []


def test_who_is_gone_is_not_looked_at() -> None:
    triage = on_level(Level.SUSPECTS)
    triage.focus(IDS, suspects(3, 5), LOST)
    assert triage.focus(IDS[:4], NONE[:4], LOST[:4]).tolist() == [int(IDS[3])]  # type: ignore[union-attr]


@pytest.mark.parametrize("step", [1, 4, 32, 41])
def test_on_patrol_everybody_has_a_turn_in_each_round_and_suspects_stay(step: int) -> None:
    ids = np.arange(1, 1 + 100 * step, step, dtype=np.uint64)
    marks = np.zeros(100, dtype=np.bool_)
    marks[5] = True
    triage = on_level(Level.ROTATION, rotation_ratio=0.25, rotation_ticks=3)
    turns = [_focus(triage, ids, marks) for _ in range(12)]
    assert all(int(ids[5]) in turn for turn in turns)
    assert turns[0] == turns[1]
    seen = set().union(*turns)
    assert seen == set(ids.tolist())
    assert max(len(turn) for turn in turns) < 60, "no turn is half of everybody"


def test_who_comes_does_not_move_the_others_into_another_turn() -> None:
    triage = on_level(Level.ROTATION, rotation_ticks=100)
    before = _focus(triage, IDS, NONE)
    more = np.concatenate([np.array([7], dtype=np.uint64), IDS])
    after = _focus(triage, more, np.zeros(len(more), dtype=np.bool_))
    assert after - {7} == before


@given(
    st.lists(st.tuples(st.sets(st.integers(0, 39)), st.sampled_from(Level)), min_size=1, max_size=30),
)
def test_the_focus_is_of_the_living_ascending_and_never_leaves_out_a_suspect_before_the_worst_level(
    ticks: list[tuple[set[int], Level]],
) -> None:
    triage = on_level(Level.EVERYTHING)
    for rows, level in ticks:
        triage.budget.level = level
        focus = triage.focus(IDS, suspects(*rows), LOST)
        if focus is None:
            assert level is Level.EVERYTHING
            continue
        assert np.all(np.diff(focus.astype(np.int64)) > 0)
        assert np.isin(focus, IDS).all()
        if level in (Level.ROTATION, Level.SUSPECTS):
            assert np.isin(IDS[sorted(rows)], focus).all()


def _rows(focus: Ids | None) -> list[int]:
    assert focus is not None
    return np.flatnonzero(np.isin(IDS, focus)).tolist()


def _focus(triage: TriagePolicy, ids: Ids, marks: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> set[int]:
    found = triage.focus(ids, marks, np.zeros(len(ids)))
    assert found is not None
    return set(found.tolist())
