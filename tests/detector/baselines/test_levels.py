"""Levels: what may teach, what follows slowly, and what starts anew."""

import numpy as np
import pytest

from detector.baselines.levels import LOWER_PERIODS, MOST_REACH_OCTAVES, NEAR_OCTAVES, Levels, middle_octave, octaves_of
from detector.baselines.sketch import BUCKETS, bucket_of

DAY = 86_400.0
NO, YES = np.array([False]), np.array([True])
ROW = np.zeros(1, dtype=np.int32)


class Cell:
    """One cell that is fed a second at a time."""

    def __init__(self) -> None:
        self.levels = Levels(3 * DAY, 60.0, count=1)
        self.now = 0.0
        self.anew = 0

    def feed(self, octave: float, seconds: int, *, accepted: bool = False, ready: bool = True) -> float:
        """Return the part of the seconds that may teach."""
        taught = 0
        for _ in range(seconds):
            self.now += 1.0
            self.levels.see(ROW, np.array([octave]))
            teaches, anew = self.levels.admit(ROW, YES if ready else NO, YES if accepted else NO, self.now)
            taught += int(teaches[0])
            self.anew += len(anew)
        return taught / seconds

    @property
    def ordinary(self) -> float:
        return float(self.levels.columns["ordinary"][0])


@pytest.fixture
def cell() -> Cell:
    made = Cell()
    assert made.feed(0.0, 180, ready=False) == 1.0
    return made


def wandering(minutes: int, deviation: float, seed: int = 3) -> list[float]:
    """Octaves of a level that moves at random and comes back within a quarter of an hour, as its own work does."""
    draw, at, found = np.random.default_rng(seed), 0.0, []
    for _second in range(60 * minutes):
        at = 0.999 * at + draw.normal(0.0, deviation * np.sqrt(1 - 0.999**2))
        found.append(at)
    return found


def test_what_comes_down_by_itself_again_and_again_reaches_higher(cell: Cell) -> None:
    for octave in wandering(240, 0.65):
        cell.feed(octave, 1)
    assert 1.2 < cell.levels.reach(ROW)[0] <= MOST_REACH_OCTAVES
    cell.feed(cell.ordinary + 1.1, 300)
    assert cell.feed(cell.ordinary + 1.1, 300) == 1.0


@pytest.mark.parametrize(
    "octaves",
    [
        pytest.param([0.0] * 240, id="steady"),
        pytest.param([min(0.1375 * (minute // 5), 1.6) for minute in range(240)], id="slowed-step-by-step"),
        pytest.param([1.58 if minute % 60 >= 50 else 0.0 for minute in range(240)], id="ten-minutes-of-each-hour"),
    ],
)
def test_what_a_neighbour_does_is_no_wandering(cell: Cell, octaves: list[float]) -> None:
    draw = np.random.default_rng(1)
    for octave in octaves:
        for noise in draw.normal(0.0, 0.07, 60).tolist():
            cell.feed(octave + noise, 1)
    assert cell.levels.reach(ROW)[0] < NEAR_OCTAVES / 2


def test_a_reach_is_added_by_the_periods_in_which_it_was_seen() -> None:
    levels = Levels(3 * DAY, 60.0, count=1)
    levels.add_falls(0, 0.3, 60.0)
    levels.add_falls(0, 0.1, 180.0)
    assert levels.columns["fall"][0] == pytest.approx(0.15)
    assert levels.columns["falls"][0] == 240.0


def test_until_a_cell_is_ready_all_levels_teach() -> None:
    made = Cell()
    assert made.feed(0.0, 90, ready=False) == made.feed(3.0, 300, ready=False) == 1.0
    assert made.ordinary == pytest.approx(3.0, abs=0.05)


@pytest.mark.parametrize(
    ("octave", "part"),
    [
        pytest.param(0.5, 1.0, id="a-third-more"),
        pytest.param(1.0, 0.1, id="twice"),
        pytest.param(-3.0, 1.0, id="an-eighth"),
    ],
)
def test_what_lies_half_as_high_again_teaches_nothing(cell: Cell, octave: float, part: float) -> None:
    assert cell.feed(octave, 900) == pytest.approx(part, abs=0.1)


def test_a_level_that_stays_is_followed_by_a_quarter_an_hour(cell: Cell) -> None:
    cell.feed(2.0, 3600)
    assert cell.ordinary == pytest.approx(np.log2(1.25), rel=0.02)
    assert cell.feed(2.0, 4 * 3600) > 0.1


def test_time_that_was_not_seen_is_no_time_to_follow(cell: Cell) -> None:
    cell.now += DAY
    cell.feed(2.0, 120)
    assert cell.ordinary < 0.1


def test_a_lower_level_counts_after_some_minutes_in_a_row(cell: Cell) -> None:
    cell.feed(-2.0, 60 * (LOWER_PERIODS - 1))
    cell.feed(0.0, 120)
    cell.feed(-2.0, 60 * (LOWER_PERIODS - 1))
    assert cell.anew == 0
    assert cell.ordinary == pytest.approx(0.0, abs=0.1)
    cell.feed(-2.0, 180)
    assert cell.anew == 1
    assert cell.ordinary == pytest.approx(-2.0, abs=0.1)


def test_an_accepted_level_stays_ordinary_for_a_half_life_after_it_was_seen(cell: Cell) -> None:
    assert cell.feed(2.0, 300, accepted=True) == 1.0
    cell.feed(0.0, 3600)
    assert (cell.anew, cell.feed(2.0, 600)) == (0, 1.0)
    cell.now += 2 * DAY
    assert cell.feed(2.0, 600) == 1.0
    cell.now += 4 * DAY
    cell.feed(0.0, 900)
    assert cell.anew == 1
    assert cell.feed(2.0, 600) < 0.2


def test_above_an_accepted_level_nothing_teaches(cell: Cell) -> None:
    cell.feed(2.0, 300, accepted=True)
    assert cell.feed(4.0, 600) < 0.2


def test_heavy_tails_teach_throughout() -> None:
    """Means of five answers each, the slowest percent thirty times slower than the median."""
    draw, made = np.random.default_rng(5), Cell()
    octaves = octaves_of(draw.lognormal(0.0, 1.5, (20_000, 5)).mean(axis=1))
    taught = [made.feed(octave, 1, ready=number >= 180) for number, octave in enumerate(octaves.tolist())]
    assert np.mean(taught) > 0.999
    assert made.anew == 0


def test_replicas_of_a_tick_are_one_look() -> None:
    one, many = Levels(DAY, 60.0, count=1), Levels(DAY, 60.0, count=1)
    for second in range(100):
        one.see(ROW, np.array([1.0]))
        rows = np.zeros(60, dtype=np.int32)
        many.see(rows, np.array([0.8, 1.2] * 30))
        teaches, _ = many.admit(rows, np.zeros(60, np.bool_), np.zeros(60, np.bool_), float(second))
        assert teaches.all()
    assert many.columns["recent"][0] == pytest.approx(one.columns["recent"][0], abs=0.01)
    assert many.columns["periods"][0] == 2


@pytest.mark.parametrize("value", [1e-9, 0.003, 1.0, 7e6])
def test_the_level_of_a_sketch_is_its_median(value: float) -> None:
    counts = np.zeros(BUCKETS)
    counts[bucket_of(np.array([value]))] = 5.0
    assert middle_octave(counts) == pytest.approx(octaves_of(np.array([value]))[0], abs=0.13)
