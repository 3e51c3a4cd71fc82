"""What lasts is learned as usual, and that is said once."""

from api.verdict_text import ACCEPTED, in_words
from api.verdicts import VerdictState
from detector.judging.acceptance import with_acceptance
from tests.verdicts import make_verdict

HOUR = 3600.0


def test_it_is_said_in_the_tick_in_which_learning_begins() -> None:
    lasting = make_verdict(time=5.0, since=5.0)
    assert with_acceptance([], [lasting], HOUR + 3, HOUR + 4, HOUR) == []
    (line,) = with_acceptance([], [lasting], HOUR + 4, HOUR + 5, HOUR)
    assert (line.state, line.time, line.evidence[ACCEPTED]) == (VerdictState.UPDATE, HOUR + 5, 1.0)
    assert in_words(line).endswith("; this has lasted so long that it counts as usual from now on")
    assert with_acceptance([], [lasting], HOUR + 5, HOUR + 6, HOUR) == []


def test_a_line_of_the_tick_says_it_and_none_is_doubled() -> None:
    lasting, other = make_verdict(since=5.0), make_verdict("/a", since=HOUR)
    update = make_verdict(state=VerdictState.UPDATE, since=5.0, lost=0.9)
    lines = with_acceptance([update, other], [lasting, other], HOUR + 4, HOUR + 5, HOUR)
    assert [(line.victim, line.lost_seconds_per_second, ACCEPTED in line.evidence) for line in lines] == [
        ("/a", 0.4, False),
        ("/web", 0.9, True),
    ]


def test_own_doing_and_what_closes_are_not_accepted() -> None:
    own = make_verdict("/own", cause="own_quota", since=5.0)
    closing = make_verdict(state=VerdictState.CLOSE, since=5.0)
    assert with_acceptance([closing], [own, make_verdict(since=5.0)], HOUR + 4, HOUR + 5, HOUR) == [closing]
