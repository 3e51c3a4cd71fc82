"""Planted trials: a part of the bench's cases, with the bench's goals."""

import pytest

from bench.trials import Score, draw, play

CASES = range(6)


@pytest.mark.slow
def test_what_helps_is_kept_and_nothing_else() -> None:
    total, alien = Score(), set()
    for seed in CASES:
        real = play(draw(seed), 200)
        total.add(real)
        alien |= play(draw(seed), 100, is_dry_run=True).actions - real.actions
    print(f"precision {total.precision:.1%}, recall {total.recall:.1%}, loose {total.loose:.2%}, notes {total.notes}")
    assert total.kept_right >= 10
    assert total.precision >= 0.9
    assert total.recall >= 0.9
    assert total.loose <= 0.015
    assert not alien


def test_cases_are_the_same_for_the_same_seed_and_cover_what_they_are_to() -> None:
    cases = [draw(seed) for seed in range(60)]
    assert draw(3) == cases[3]
    assert {len(case.victims) for case in cases} == {1, 2}
    assert {len(case.plants) for case in cases} == set(range(1, 9))
    plants = [plant for case in cases for plant in case.plants]
    assert any(plant.bursts for plant in plants)
    assert any(not plant.helps for plant in plants)
