"""Answers for rows: asked once, and again for rows that changed."""

import numpy as np
import pytest

from scheduler.claims import rowanswers
from scheduler.claims.rowanswers import RowAnswers


class Asked:
    def __init__(self) -> None:
        self.rows: list[int] = []

    def __call__(self, row: int) -> int:
        self.rows.append(row)
        return row * 10 + len(self.rows)

    def taken(self) -> list[int]:
        rows, self.rows = self.rows, []
        return sorted(rows)


def test_only_changed_and_new_rows_are_asked_again() -> None:
    made, asked = RowAnswers(), Asked()
    first = made.of(b"q", 3, asked)
    assert asked.taken() == [0, 1, 2]
    assert made.of(b"q", 3, asked) is first
    made.row_changed(1)
    second = made.of(b"q", 3, asked)
    assert asked.taken() == [1]
    assert first[1] != second[1]
    assert [first[0], first[2]] == [second[0], second[2]]
    made.row_changed(7)
    assert made.of(b"q", 4, asked).shape == (4,)
    assert asked.taken() == [3]
    assert made.of(b"q", 2, asked).shape == (2,)
    assert asked.taken() == []
    made.of(b"other", 2, asked)
    assert asked.taken() == [0, 1]


def test_everything_is_asked_again_when_all_may_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowanswers, "MAX_CHANGES", 2)
    monkeypatch.setattr(rowanswers, "MAX_QUESTIONS", 2)
    made, asked = RowAnswers(), Asked()
    made.of(b"q", 2, asked)
    for change in (None, 0):
        made.row_changed(change)
        made.row_changed(change)
        made.row_changed(change)
        asked.taken()
        made.of(b"q", 2, asked)
        assert asked.taken() == [0, 1]
    made.of(b"r", 1, asked)
    made.of(b"s", 1, asked)
    asked.taken()
    made.of(b"q", 2, asked)
    assert asked.taken() == [0, 1], "the oldest question was forgotten"
    made.clear()
    made.of(b"q", 2, asked)
    assert asked.taken() == [0, 1]


def test_an_answer_that_is_not_known_yet_is_asked_for_again() -> None:
    made, asked = RowAnswers(), Asked()
    first = made.of(b"q", 3, asked, unknown=12)
    assert list(first) == [1, 12, 23]
    asked.taken()
    second = made.of(b"q", 3, asked, unknown=12)
    assert asked.taken() == [1]
    assert list(second) == [1, 11, 23]
    assert first[1] == 12
    assert made.of(b"q", 3, asked, unknown=12) is second


def test_rows_that_do_not_matter_are_asked_when_they_do() -> None:
    made, asked = RowAnswers(), Asked()
    made.of(b"q", 3, asked, wanted=np.array([True, False, False]))
    assert asked.taken() == [0]
    made.row_changed(0)
    found = made.of(b"q", 3, asked, wanted=np.array([False, True, False]))
    assert asked.taken() == [1]
    assert found[1] == 11
    made.of(b"q", 3, asked)
    assert asked.taken() == [0, 2]
