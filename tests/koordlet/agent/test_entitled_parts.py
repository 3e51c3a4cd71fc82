"""The entitled part of losses in the lines that an agent tells, and in its open verdicts until their next line."""

import msgspec
import pytest

from api.verdict_text import ENTITLED, in_words
from api.verdicts import Verdict, VerdictState
from api.window import Window
from koordlet.agent.entitled_parts import MOST_LINES, EntitledParts
from koordlet.tick import Tick
from tests.frames import make_frame
from tests.verdicts import make_verdict

FRAMES = Window([make_frame(float(second), {1: "/web"}, {"cpu.oncpu_ns": [second]}) for second in (0, 1)])
WEB = make_verdict("/web", resource="cpu", cause="contention", lost=0.4)


def tick(*lines: Verdict, still_open: tuple[Verdict, ...] = ()) -> Tick:
    return Tick.of(FRAMES, lines, still_open)


def split(parts: EntitledParts, made: Tick) -> Tick:
    parts.take(made)
    return parts.of(made)


def test_a_line_says_what_lies_beyond_the_share() -> None:
    (line,) = split(EntitledParts(lambda _verdict: 0.1), tick(WEB, still_open=(WEB,))).verdicts
    assert line.evidence[ENTITLED] == pytest.approx(0.1)
    assert in_words(line).endswith("; of this 0.30 s/s beyond its share")


@pytest.mark.parametrize("part", [pytest.param(0.39, id="nearly-all"), pytest.param(None, id="no-share-is-known")])
def test_what_is_below_the_share_is_said_as_before(part: float | None) -> None:
    (line,) = split(EntitledParts(lambda _verdict: part), tick(WEB, still_open=(WEB,))).verdicts
    assert in_words(line) == in_words(WEB)
    assert line.evidence.get(ENTITLED) == part


def test_an_open_verdict_keeps_the_part_of_its_last_line() -> None:
    found = iter([0.1, 0.3])
    parts = EntitledParts(lambda _verdict: next(found))
    update = msgspec.structs.replace(WEB, state=VerdictState.UPDATE)
    assert split(parts, tick(WEB, still_open=(WEB,))).open_verdicts[0].evidence[ENTITLED] == 0.1
    assert split(parts, tick(still_open=(WEB,))).open_verdicts[0].evidence[ENTITLED] == 0.1
    assert split(parts, tick(update, still_open=(update,))).open_verdicts[0].evidence[ENTITLED] == 0.3
    closed = msgspec.structs.replace(WEB, state=VerdictState.CLOSE)
    assert ENTITLED not in split(parts, tick(closed)).verdicts[0].evidence
    assert ENTITLED not in split(parts, tick(still_open=(WEB,))).open_verdicts[0].evidence


def test_of_many_lines_the_largest_losses_are_split() -> None:
    lines = tuple(
        make_verdict(f"/{number}", resource="cpu", cause="contention", lost=0.1 + number)
        for number in range(MOST_LINES + 5)
    )
    asked: list[str] = []
    split(EntitledParts(lambda verdict: asked.append(verdict.victim)), tick(*lines, still_open=lines))
    assert len(asked) == MOST_LINES
    assert "/4" not in asked
