"""Device selectors: what they select, what they refuse, and that they end whatever they are given."""

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.claims.expression import compiled
from scheduler.claims.selectable import EvaluationError, Selectable, quantity, version
from scheduler.claims.tokens import ExpressionError

DEVICE = Selectable(
    "gpu.example.com",
    {
        "gpu.example.com": {"model": "A100", "major": 8, "ecc": True, "driver": version("12.4.1-rc.2")},
        "pci.io": {"bus": "0a"},
    },
    {"gpu.example.com": {"memory": quantity("40Gi"), "share": quantity("500m")}},
)
OWN = 'device.attributes["gpu.example.com"]'
CAPACITY = 'device.capacity["gpu.example.com"]'


SELECTED = [
    ('device.driver == "gpu.example.com"', True),
    (f'{OWN}.model == "A100" && {OWN}.ecc', True),
    (f'{OWN}["model"] in ["H100", "A100"]', True),
    (f'"model" in {OWN} && !("size" in {OWN})', True),
    (f"has({OWN}.model) && !has({OWN}.size)", True),
    ('"nowhere.io" in device.attributes', False),
    ('"model" in device.attributes["nowhere.io"] || has(device.capacity["nowhere.io"].memory)', False),
    ('device.attributes["nowhere.io"].size() == 0 && !("nowhere.io" in device.attributes)', True),
    (f"{OWN}.major >= 8 && {OWN}.major * 10 + 1 == 81 && -{OWN}.major == 0 - 8", True),
    (f"{OWN}.major / 3 == 2 && {OWN}.major % 3 == 2 && -7 / 2 == -3 && -7 % 2 == -1", True),
    (f'{CAPACITY}.memory.compareTo(quantity("40Gi")) >= 0', True),
    (f'{CAPACITY}.memory.isGreaterThan(quantity("80Gi"))', False),
    (f'{CAPACITY}.share.isLessThan(quantity("1"))', True),
    (f'{OWN}.driver.compareTo(semver("12.4.1")) < 0', True),
    (f'{OWN}.driver.isGreaterThan(semver("12.4.1-rc.1"))', True),
    ('semver("1.2.10").isGreaterThan(semver("1.2.9")) && semver("1.2.3").minor() == 2', True),
    (f'{OWN}.model.startsWith("A") && {OWN}.model.lowerAscii() == "a100" && size({OWN}.model) == 4', True),
    (f'cel.bind(own, {OWN}, own.model == "A100" && own.ecc)', True),
    (f"{OWN}.ecc ? {OWN}.major > 7 : false", True),
    (f"{OWN}.ecc == 1", False),
    ('1 == 1.0 && "a" != 1 && !!true', True),
    (f"true || {OWN}.nothing", True),
    (f"{OWN}.nothing || true", True),
    (f"{OWN}.nothing && false", False),
    (r'"a\"b" == ' + "'a\"b'", True),
    ("[1, 2] == [1, 2] && [1, 2] != [2, 1] && [1] != [1, 1]", True),
    ("[true] == [1]", False),
    ("1" + "+1" * 1000 + " == 1001", True),
    ("1 - 2 - 3 == -4 && 8 / 2 / 2 == 2", True),
]


@pytest.mark.parametrize("row", range(len(SELECTED)))
def test_what_is_selected(row: int) -> None:
    text, selected = SELECTED[row]
    assert compiled(text).selects(DEVICE) is selected


FAILING = [
    f"{OWN}.nothing == 1",
    'device.attributes["nowhere.io"].model == "x"',
    f"{OWN}.model < 3",
    f"{OWN}.major",
    "1 / 0 == 1",
    "9223372036854775807 + 1 > 0",
    f'{OWN}.model.compareTo(quantity("1")) == 0',
    'quantity("much").compareTo(quantity("1")) == 0',
    'semver("1.2") == semver("1.2")',
    "device.name == 'x'",
    "[1][3] == 1",
]


@pytest.mark.parametrize("row", range(len(FAILING)))
def test_what_fails_on_a_device(row: int) -> None:
    with pytest.raises(EvaluationError):
        compiled(FAILING[row]).selects(DEVICE)


REFUSED = [
    ("", "too early"),
    ("1 ==", "too early"),
    ("1 2", "not understood"),
    ("self.x == 1", "no variable self"),
    ("[1, 2].exists(x, x == 1)", "no variable x"),
    (f'{OWN}.model.matches("A.*")', "regular expressions"),
    ("device.attributes.all()", "loops"),
    ("cel.block(1)", "bind alone"),
    ('url("x") == 1', "function url"),
    ("(" * 200 + "1" + ")" * 200, "deeper"),
    ("[" * 200 + "1" + "]" * 200, "deeper"),
    ("true?" * 200 + "true" + ":true" * 200, "deeper"),
    ("device" + ".a" * 200, "more than"),
    ("!-1 == 1", "on one value"),
    ("1" * 40, "out of range"),
    (r'"\u0041" == "A"', "escape"),
    ("1 == 1 || " * 2000 + "true", "longer"),
    ("a @ b", "not understood"),
    ("[[1]] == [[1]]", "a list inside a list"),
    ("cel.bind(a, ([1]), a == a)", "a list bound to a name"),
    ("(true ? [1] : [2]) == [1]", "a list chosen by"),
    ("cel.bind(a, 1, [a]) == [1]", "a list returned by cel.bind"),
]


@pytest.mark.parametrize("row", range(len(REFUSED)))
def test_what_is_refused(row: int) -> None:
    text, named = REFUSED[row]
    with pytest.raises(ExpressionError, match=named):
        compiled(text)


@pytest.mark.parametrize("level", ["({}+1)", "({}==1)", "size({}[0].a)", "({}?1:1)", "!(true||true&&1=={}*1+1)"])
def test_depth_of_what_is_compiled_is_bounded(level: str) -> None:
    text = "1"
    for _ in range(30):
        text = level.format(text)
    try:
        compiled(text).selects(DEVICE)
    except EvaluationError as error:
        assert "levels" not in str(error)
    with pytest.raises(ExpressionError, match="deeper"):
        for _ in range(70):
            compiled(text := level.format(text))


def test_what_recurses_too_far_is_the_expressions_fault() -> None:
    def below(levels: int) -> bool:
        return below(levels - 1) if levels else compiled("(" * 60 + "1" + ")" * 60 + "== 1").selects(DEVICE)

    with pytest.raises((ExpressionError, EvaluationError), match="too many levels"):
        below(sys.getrecursionlimit() - 150)


WORDS = [
    "device",
    ".",
    "driver",
    "attributes",
    "[",
    "]",
    "(",
    ")",
    "'x'",
    "1",
    "true",
    "&&",
    "||",
    "!",
    "-",
    "==",
    "in",
]
WORDS += ["?", ":", ",", "cel", "bind", "has", "size", "quantity", "+", "/", "compareTo", "8.5"]


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join), st.text(max_size=80)))
def test_any_text_is_answered_or_refused(text: str) -> None:
    result: Any
    try:
        result = compiled(text).selects(DEVICE)
    except (ExpressionError, EvaluationError) as error:
        result = error
    assert result is not None
