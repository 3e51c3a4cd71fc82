"""Kubernetes quantities and arithmetic on resource lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kube.resources import (
    MAX_QUANTITY,
    QuantityError,
    _parse,
    add,
    fits,
    format_resources,
    maximum,
    parse_quantity,
    parse_resources,
    subtract,
)


@pytest.mark.parametrize(
    ("text", "scale", "expected"),
    [
        ("1", 1, 1),
        ("100m", 1000, 100),
        ("1.5", 1000, 1500),
        ("0.1m", 1000, 1),
        ("100m", 1, 1),
        ("8Gi", 1, 8 * 2**30),
        ("8G", 1, 8 * 10**9),
        ("1e3", 1, 1000),
        ("1E", 1, 10**18),
        ("2Ki", 1, 2048),
        ("1500n", 1000, 1),
        (110, 1, 110),
        (0.5, 1000, 500),
        ("-1.5", 1, -2),
        ("0", 1, 0),
    ],
)
def test_quantity_rounds_away_from_zero(text: str | float, scale: int, expected: int) -> None:
    assert parse_quantity(text, scale) == expected


@pytest.mark.parametrize("text", ["", "Gi", "1x", "one", "1 Gi2", "--1", "NaN", "Infinity"])
def test_a_text_that_is_no_quantity_is_named(text: str) -> None:
    with pytest.raises(QuantityError, match="not a quantity"):
        parse_quantity(text)


def test_only_cpu_counts_in_thousandths() -> None:
    assert parse_resources({"cpu": "2", "memory": "1Ki", "kubernetes.io/batch-cpu": "2000"}) == {
        "cpu": 2000,
        "memory": 1024,
        "kubernetes.io/batch-cpu": 2000,
    }


amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "x/y"]), st.integers(0, 10**15), max_size=3)


@given(amounts)
def test_formatting_comes_back(resources: dict[str, int]) -> None:
    assert parse_resources(format_resources(resources)) == resources


@given(amounts, amounts)
def test_addition_commutes_and_subtraction_undoes_it(left: dict[str, int], right: dict[str, int]) -> None:
    assert add(left, right) == add(right, left)
    back = subtract(add(left, right), right)
    assert {name: amount for name, amount in back.items() if amount} == {
        name: amount for name, amount in left.items() if amount
    }


@given(amounts, amounts)
def test_each_fits_in_the_maximum(left: dict[str, int], right: dict[str, int]) -> None:
    assert fits(left, maximum(left, right))
    assert fits(right, maximum(left, right))


def test_a_request_for_nothing_fits_everywhere() -> None:
    assert fits({"x/y": 0}, {})
    assert not fits({"x/y": 1}, {})


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1e999999", MAX_QUANTITY),
        ("-1e999999", -MAX_QUANTITY),
        ("1e99999999", MAX_QUANTITY),
        pytest.param("9" * 64, MAX_QUANTITY, id="long"),
        ("8Ei", MAX_QUANTITY),
        ("7Ei", 7 * 2**60),
        ("1e-999999", 1),
        ("0e999999", 0),
    ],
)
def test_amounts_beyond_range_saturate_as_in_kubernetes(text: str, amount: int) -> None:
    assert parse_quantity(text) == amount


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("1" * 65, id="too-long"),
        "1e9999999999999999999999",
        "nan",
        "inf",
        "1e",
        pytest.param("\ud800", id="half-a-character"),
        "",
        "1 1",
    ],
)
def test_what_is_no_quantity_is_named(text: str) -> None:
    with pytest.raises(QuantityError, match="not a quantity"):
        parse_quantity(text)


@given(st.text(st.sampled_from("0123456789.eE+-numkKMGTPi "), max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert abs(parse_quantity(text, 1000)) <= MAX_QUANTITY
    except QuantityError as error:
        assert len(str(error)) < 200


def test_amounts_that_come_once_are_not_remembered() -> None:
    before = _parse.cache_info().currsize
    assert [parse_quantity(str(number), 1000) for number in range(3)] == [0, 1000, 2000]
    assert parse_quantity("1" * 40) == MAX_QUANTITY
    assert _parse.cache_info().currsize == before
