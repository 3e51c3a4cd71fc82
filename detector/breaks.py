"""Breaks in long work: what does it calls a function between its parts, which may sleep."""

from collections.abc import Callable

Between = Callable[[], None]


def no_breaks() -> None:
    """Go on at once."""
