"""Times of reports: intervals, urgency, and a thousand agents whose server comes back."""

from collections import Counter
from itertools import pairwise
from random import Random

from koordlet.kube.report_policy import JITTER, URGENT_SECONDS, ReportSchedule
from koordlet.kube.reporter import RETRY

NOTHING: frozenset[object] = frozenset()
ONE: frozenset[object] = frozenset({("cpu", "shop/web")})


def times(schedule: ReportSchedule, seconds: int, stated: frozenset[object] = NOTHING) -> list[int]:
    found = []
    for second in range(seconds):
        if schedule.due(stated, float(second)):
            schedule.reported(stated, 60.0, float(second))
            found.append(second)
    return found


def test_reports_come_at_the_interval_with_jitter() -> None:
    found = times(ReportSchedule(Random(1)), 3600)
    assert found[0] <= 10
    gaps = [after - before for before, after in pairwise(found)]
    assert all(60 * (1 - JITTER) <= gap <= 61 for gap in gaps)
    assert len(set(gaps)) > 1


def test_a_verdict_is_reported_soon_and_not_more_often_than_allowed() -> None:
    schedule = ReportSchedule(Random(1), 0.0)
    assert schedule.due(NOTHING, 0.0)
    schedule.reported(NOTHING, 60.0, 0.0)
    assert not schedule.due(ONE, URGENT_SECONDS - 1)
    assert schedule.due(ONE, URGENT_SECONDS)
    schedule.reported(ONE, 60.0, URGENT_SECONDS)
    assert not schedule.due(ONE, URGENT_SECONDS + 10)
    assert schedule.due(NOTHING, URGENT_SECONDS + 10), "one that closed is urgent too"


def test_a_rollout_of_many_agents_reports_apart() -> None:
    first = Counter(times(ReportSchedule(Random(seed)), 12)[0] for seed in range(1000))
    assert max(first.values()) < 200


def test_many_agents_return_apart_after_ten_minutes_without_a_server() -> None:
    """Each tries as its back-off says; the server is away from 0 to 600 s. Requests a second and an agent's tries."""
    arrivals: Counter[int] = Counter()
    tries = []
    for seed in range(1000):
        random, now, attempt = Random(seed), Random(seed).random(), 0
        while now < 600.0:
            now += RETRY.delay_seconds(attempt, random)
            attempt += 1
        tries.append(attempt)
        arrivals[int(now)] += 1
    assert max(arrivals.values()) < 60, "a thousand agents at 17 a second on average"
    assert max(tries) < 50
    assert sum(tries) / len(tries) < 30
