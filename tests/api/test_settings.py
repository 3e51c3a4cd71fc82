"""Settings are refused by file, table and key."""

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from api.settings import SettingsError, convert, merge, parse


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    count: Annotated[int, Meta(ge=1, le=10)] = 3


class Outer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    inner: Inner = Inner()
    name: str = "x"
    shares: dict[Literal["a", "b"], float] = {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("nome = 'y'", ["k.toml", "nome", "unknown"], id="unknown-key"),
        pytest.param("[inner]\ncuont = 4", ["k.toml", "[inner]", "cuont"], id="unknown-key-in-table"),
        pytest.param("[inner]\ncount = 'four'", ["k.toml", "[inner]", "count", "int"], id="wrong-type"),
        pytest.param("[inner]\ncount = 11", ["k.toml", "[inner]", "count", "10"], id="out-of-range"),
        pytest.param("[shares]\nc = 1.0", ["k.toml: shares: Invalid enum value 'c'"], id="wrong-name-in-table"),
        pytest.param("name = ", ["k.toml", "not readable"], id="not-toml"),
    ],
)
def test_refused(text: str, told: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        convert(parse(text, "k.toml"), Outer, "k.toml")
    for word in told:
        assert word in str(caught.value)


def test_toml_and_yaml_say_the_same() -> None:
    toml = convert(parse("[inner]\ncount = 5", "a.toml"), Outer, "a.toml")
    yaml = convert(parse("inner:\n  count: 5\n", "a.yaml"), Outer, "a.yaml")
    assert toml == yaml == Outer(Inner(5))


def test_an_empty_file_is_all_defaults() -> None:
    assert convert(parse("", "a.yaml"), Outer, "a.yaml") == Outer()


def test_later_files_lie_over_earlier_ones_key_by_key() -> None:
    assert merge({"a": {"x": 1, "y": 2}, "b": [1]}, {"a": {"y": 3}, "b": [2]}) == {"a": {"x": 1, "y": 3}, "b": [2]}
