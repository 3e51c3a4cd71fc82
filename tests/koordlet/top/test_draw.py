"""Text of the live view: widths that hold, shares that sum, nothing lost in shortening."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.frame import CgroupInfo
from api.loss import LOSS_CAUSES
from koordlet.top.draw import (
    CAUSE_STYLES,
    FACTS,
    Columns,
    bar,
    culprits_text,
    detail,
    duration,
    heading,
    legend,
    line,
    seconds,
    sparkline,
)
from koordlet.top.rows import CulpritShare, Latencies, Order, TopRow

CAUSES = [cause.name for cause in LOSS_CAUSES]
FACT_VALUES = {
    "requests_per_second": 12.34,
    "cycles_per_instruction": 1.234,
    "llc_miss_ratio": 0.125,
    "llc_bytes": 3.5 * 2**20,
    "memory_bytes_per_second": 1536.0,
    "smt_foreign": 0.25,
    "memory_usage_bytes": 2.0**41,
}
FACT_TEXTS = (
    "12.3 requests/s",
    "1.23 cycles",
    "12.5% of cache",
    "3.5 MiB of the",
    "1.5 KiB/s",
    "0.250 s/s",
    "2 TiB of",
)
HOG = CulpritShare(2, "a-hog-with-quite-a-long-name.service", "cpu", 0.25)


def _row(causes: dict[str, float], name: str = "victim") -> TopRow:
    return TopRow(CgroupInfo(1, f"/{name}", name), sum(causes.values()), causes, 0.5, (HOG,))


def test_every_cause_has_a_letter_of_its_own_that_tells_whose_doing_it_is() -> None:
    assert set(CAUSE_STYLES) == set(CAUSES)
    assert len({cause_style.letter for cause_style in CAUSE_STYLES.values()}) == len(CAUSE_STYLES)
    for cause in LOSS_CAUSES:
        if CAUSE_STYLES[cause.name].letter.isalpha():
            assert CAUSE_STYLES[cause.name].letter.isupper() == cause.by_others


@pytest.mark.parametrize("width", [40, 60, 80, 81, 120, 200])
@pytest.mark.parametrize("name", [pytest.param("a", id="short"), pytest.param("x" * 90, id="long")])
def test_lines_and_headings_are_exactly_as_wide_as_the_screen(width: int, name: str) -> None:
    columns = Columns.fit(width)
    for order in Order:
        assert heading(columns, order).cell_len == width
    drawn = line(_row({"cpu:self": 1234.5}, name), [0.1] * 60, columns, is_selected=True)
    assert drawn.cell_len == width


@given(st.dictionaries(st.sampled_from(CAUSES), st.floats(0.001, 100), min_size=1), st.integers(1, 40))
def test_bars_are_full_and_each_letter_is_earned(causes: dict[str, float], width: int) -> None:
    drawn = bar(causes, width).plain
    assert len(drawn) == width
    whole = sum(causes.values())
    for name, value in causes.items():
        assert abs(drawn.count(CAUSE_STYLES[name].letter) - width * value / whole) < 1


def test_a_bar_of_next_to_nothing_is_blank() -> None:
    assert bar({"cpu:self": 0.0001}, 5).plain == "     "
    assert bar({}, 5).plain == "     "


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([], 3, "   "),
        ([0, 0], 3, "   "),
        ([1], 3, "  █"),
        ([0, 4, 8], 3, " ▄█"),
        ([0.001, 8], 2, "▁█"),
        ([8, 0, 0, 4], 2, "█▄"),
        ([9, 1, 2, 3, 4], 2, "█▄"),
    ],
    ids=["none", "all-zero", "one", "scaled", "small-is-seen", "columns-show-peaks", "uneven"],
)
def test_sparklines(values: list[float], width: int, expected: str) -> None:
    assert sparkline(values, width).rjust(width) == expected


def test_a_minute_at_ten_ticks_a_second_still_fits() -> None:
    assert len(sparkline([float(value) for value in range(600)], 12)) == 12


@pytest.mark.parametrize(("value", "text"), [(0.0, "·"), (0.0123, "0.012"), (9.9, "9.900"), (123.45, "123.5")])
def test_seconds(value: float, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(("value", "text"), [(2.5, "2.5 s"), (0.0021, "2.1 ms"), (4e-6, "4 us"), (5e-8, "50 ns")])
def test_durations(value: float, text: str) -> None:
    assert duration(value) == text


def test_sharesare_shown_whole_or_not_at_all() -> None:
    small = CulpritShare(3, "small", "cpu", 0.01)
    assert culprits_text([small, small], 25) == "small 0.010, small 0.010"
    assert culprits_text([small, small], 23) == "small 0.010"
    assert culprits_text([HOG], 20).endswith(" 0.250")
    assert len(culprits_text([HOG], 20)) == 20
    assert culprits_text([], 20) == ""


def test_the_legend_names_what_is_on_the_screen_biggest_first() -> None:
    text = legend([_row({"cpu:self": 1.0, "cpu:own_quota": 2.0})], 80).plain
    assert text.split() == ["q", "cpu:own", "quota", "s", "cpu:self"]
    assert legend([_row(dict.fromkeys(CAUSES, 1.0))], 40).cell_len <= 40


def test_detail_says_everything() -> None:
    assert set(FACTS) == set(FACT_VALUES)
    row = _row({"cpu:neighbour": 0.5, "cpu:own_quota": 0.25})
    text = detail(row, [0.5, 0.75], [Latencies("run-queue wait", 4e-6, 0.002)], 80, facts=FACT_VALUES).plain
    for part in (
        "/victim",
        "0.750",
        "CPU held by another cgroup",
        HOG.name,
        "half within 4 us",
        "99 % within 2 ms",
        "▆█",
    ):
        assert part in text
    assert max(map(len, text.splitlines())) <= 80
    assert not math.isnan(row.by_others)
