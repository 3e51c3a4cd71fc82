"""Texts that no program should write, made from valid ones: cut, doubled, spliced, out of range, deeply nested."""

from collections.abc import Sequence

from hypothesis import strategies as st

LONGEST = 1 << 16
ODD = (
    "\0", "\x1b[2J", "\ud800", "9" * 400, "1e999999", "-1", "NaN", "²", "0-99999999999",
    '"', "[" * 2000, '{"a":' * 1500,
    "\\x", "\\", "..", "/" * 50, "\n\n", "=", ":", " ", "null", "true", "{}", "[]",
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, seeds: Sequence[str]) -> str:
    """Mostly a valid text with some damage."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(start + 40, len(text))))
        patch = draw(st.one_of(st.sampled_from(ODD), st.text(max_size=10), st.sampled_from(seeds)))
        text = (text[:start] + patch + text[end:])[:LONGEST]
    return text
