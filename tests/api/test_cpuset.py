"""CPU lists survive the round trip and malformed ones are named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cpuset import format_cpuset, parse_cpuset


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        pytest.param("", set(), id="empty"),
        pytest.param("0", {0}, id="one"),
        pytest.param("0-3,8", {0, 1, 2, 3, 8}, id="range-and-one"),
        pytest.param(" 2-2,1 \n", {1, 2}, id="overlap-and-spaces"),
        pytest.param("10-11,0-1", {0, 1, 10, 11}, id="unordered-ranges"),
    ],
)
def test_parse(text: str, cpus: set[int]) -> None:
    assert parse_cpuset(text) == cpus


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "3-1",
        "1-",
        "-1",
        "1..2",
        "65536",
        "0-4294967295",
        "0-" + "9" * 40,
        "²",
        "0-65535,1",
    ],
)
def test_malformed_lists_are_named(text: str) -> None:
    with pytest.raises(ValueError, match="not a CPU list"):
        parse_cpuset(text)


@given(st.sets(st.integers(0, 300)))
def test_format_is_the_inverse_of_parse(cpus: set[int]) -> None:
    assert parse_cpuset(format_cpuset(cpus)) == cpus


def test_format_is_shortest() -> None:
    assert format_cpuset([8, 3, 1, 2, 0, 10]) == "0-3,8,10"


def test_the_number_of_cpus_is_bounded_before_they_are_counted_out() -> None:
    assert len(parse_cpuset("0-8191", 8192)) == 8192
    for text in ("9" * 5000, "8192", "0-8192", "0-8191,0", ",".join(["0-8191"] * 20_000)):
        with pytest.raises(ValueError, match="not a CPU list"):
            parse_cpuset(text, 8192)


@given(st.text(st.sampled_from("0123456789-, ²"), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert len(parse_cpuset(text)) <= 65_536
    except ValueError as error:
        assert "not a CPU list" in str(error)
