"""The last minute: one point a tick, bounded, calm about cgroups that come and go."""

from api.window import Window
from koordlet.top.trend import Trend
from tests.frames import make_frame


def _frames(totals: list[int]) -> Window:
    return Window(
        [make_frame(float(second), {1: "/a"}, {"cpu.wait_self_ns": [ns]}) for second, ns in enumerate(totals)]
    )


def test_a_point_is_the_growth_of_the_newest_tick() -> None:
    trend, totals = Trend(60.0, 1.0), [0, 500_000_000, 500_000_000, 2_500_000_000]
    for count in range(2, 5):
        trend.add(_frames(totals[:count]))
    assert trend.of(1) == [0.5, 0.0, 2.0]
    assert trend.whole() == [0.5, 0.0, 2.0]
    assert trend.of(99) == [0.0, 0.0, 0.0]


def test_the_same_frame_counts_once_and_one_frame_says_nothing() -> None:
    trend = Trend(60.0, 1.0)
    trend.add(_frames([7]))
    trend.add(_frames([0, 10**9]))
    trend.add(_frames([0, 10**9]))
    assert trend.of(1) == [1.0]


def test_old_points_fall_out() -> None:
    trend = Trend(3.0, 1.0)
    for second in range(1, 10):
        trend.add(_frames([index * 10**9 for index in range(second + 1)]))
    assert len(trend.of(1)) == 3
