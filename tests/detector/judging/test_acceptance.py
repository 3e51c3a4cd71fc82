"""What lasts is learned as usual, and that is said once."""

import msgspec

from api.verdict_text import ACCEPTED, in_words
from api.verdicts import VerdictState
from detector.judging.acceptance import TickTimes, with_acceptance
from tests.verdicts import make_verdict

HOUR = 3600.0
BY_USUAL = {"turnaround.lost": 0.4, "usual_turnaround_seconds": 0.01}
LATE = make_verdict(resource="service", cause="turnaround", rule="turnaround", evidence=BY_USUAL, time=5.0, since=5.0)


def test_it_is_said_in_the_tick_in_which_learning_begins() -> None:
    lasting = LATE
    assert with_acceptance([], [lasting], {}, TickTimes(HOUR + 3, HOUR + 4), HOUR, {}) == []
    (line,) = with_acceptance([], [lasting], {}, TickTimes(HOUR + 4, HOUR + 5), HOUR, {})
    assert (line.state, line.time, line.evidence[ACCEPTED]) == (VerdictState.UPDATE, HOUR + 5, 1.0)
    assert in_words(line).endswith("; this has lasted so long that it counts as usual from now on")
    assert with_acceptance([], [lasting], {}, TickTimes(HOUR + 5, HOUR + 6), HOUR, {}) == []


def test_the_time_of_earlier_verdicts_counts() -> None:
    earlier = {("/web", "turnaround"): HOUR - 600}
    assert with_acceptance([], [LATE], {}, TickTimes(603, 604), HOUR, earlier) == []
    (line,) = with_acceptance([], [LATE], {}, TickTimes(604, 605), HOUR, earlier)
    assert ACCEPTED in line.evidence
    for closed_at, accepted in ((600.0, False), (606.0, True)):
        closing = msgspec.structs.replace(LATE, state=VerdictState.CLOSE, time=closed_at)
        (told,) = with_acceptance([closing], [], earlier, TickTimes(closed_at - 1, closed_at), HOUR, {})
        assert (ACCEPTED in told.evidence) == accepted


def test_a_line_of_the_tick_says_it_and_none_is_doubled() -> None:
    lasting, other = LATE, make_verdict("/a", since=HOUR)
    update = msgspec.structs.replace(LATE, state=VerdictState.UPDATE, lost_seconds_per_second=0.9)
    lines = with_acceptance([update, other], [lasting, other], {}, TickTimes(HOUR + 4, HOUR + 5), HOUR, {})
    assert [(line.victim, line.lost_seconds_per_second, ACCEPTED in line.evidence) for line in lines] == [
        ("/a", 0.4, False),
        ("/web", 0.9, True),
    ]


def test_what_was_seen_and_what_closes_are_not_accepted() -> None:
    seen = (make_verdict("/own", cause="own_quota", since=5.0), make_verdict("/waits", since=5.0))
    closing = msgspec.structs.replace(LATE, state=VerdictState.CLOSE)
    assert with_acceptance([closing], [*seen, LATE], {}, TickTimes(HOUR + 4, HOUR + 5), HOUR, {}) == [closing]


def test_a_loss_by_usual_values_counts_as_usual_and_ends_without_a_word_of_its_end() -> None:
    """Its end after that may be one of the usual values alone, while the victim is as slow as before."""
    late = LATE
    (line,) = with_acceptance([], [late], {}, TickTimes(HOUR + 4, HOUR + 5), HOUR, {})
    assert in_words(line).endswith("; this has lasted so long that it counts as usual from now on")
    for closed_at, words in (
        (HOUR, "/web no longer loses notable time answering late, after 3595 s"),
        (HOUR + 300, "/web loses no more time answering late than has become usual for it, after 3895 s"),
    ):
        closing = msgspec.structs.replace(late, state=VerdictState.CLOSE, time=closed_at)
        times = TickTimes(closed_at - 1, closed_at)
        (told,) = with_acceptance([closing], [], {("/web", "turnaround"): 0.0}, times, HOUR, {})
        assert in_words(told) == words
        assert with_acceptance([closing], [], {}, times, HOUR, {}) == [closing], "it ended with its cgroup or its rule"
