"""Log lines of verdicts: openings, closings, and notable updates."""

import logging

import msgspec

from api.verdicts import Culprit, How, Severity, Verdict, VerdictState
from koordlet.outputs.verdict_log import MOST_LINES, VerdictLog
from tests.verdicts import make_verdict

OPEN = make_verdict(time=100.0, severity=Severity.HIGH, culprits=(Culprit("/batch", 1.0, How.DIRECT),))


def changed(lost: float, culprit: str = "/batch") -> Verdict:
    culprits = (Culprit(culprit, 1.0, How.DIRECT),) if culprit else ()
    return msgspec.structs.replace(OPEN, state=VerdictState.UPDATE, lost_seconds_per_second=lost, culprits=culprits)


def said(sayings: VerdictLog, *verdicts: Verdict) -> list[str]:
    return [line for _level, line in sayings.lines(verdicts)]


def test_openings_and_closings_are_said() -> None:
    sayings = VerdictLog({"/web": "web", "/batch": "batch-7"}.__getitem__)
    assert list(sayings.lines([OPEN])) == [(logging.WARNING, "web lost 0.40 s/s waiting for CPU: 0.40 to batch-7")]
    closed = msgspec.structs.replace(OPEN, state=VerdictState.CLOSE, time=112.0)
    assert list(sayings.lines([closed])) == [
        (logging.INFO, "web no longer loses notable time waiting for CPU, after 12 s")
    ]


def test_a_change_is_said_when_it_got_much_worse_than_was_said() -> None:
    sayings = VerdictLog()
    said(sayings, OPEN)
    assert said(sayings, changed(0.7)) == []
    assert said(sayings, changed(0.1)) == []
    assert len(said(sayings, changed(0.9))) == 1
    assert said(sayings, changed(1.7)) == []


def test_a_change_is_said_when_another_culprit_comes_first_and_it_still_matters() -> None:
    sayings = VerdictLog()
    said(sayings, OPEN)
    assert said(sayings, changed(0.05, "/cron")) == []
    assert said(sayings, changed(0.4, "")) == []
    assert said(sayings, changed(0.3, "/cron")) == ["/web now loses 0.30 s/s waiting for CPU: 0.30 to /cron"]
    assert said(sayings, changed(0.3, "/cron")) == []


def test_a_storm_is_cut_short_and_says_so() -> None:
    storm = [msgspec.structs.replace(OPEN, victim=f"/{number}") for number in range(MOST_LINES + 5)]
    lines = said(VerdictLog(), *storm)
    assert len(lines) == MOST_LINES + 1
    assert "5 more" in lines[-1]
