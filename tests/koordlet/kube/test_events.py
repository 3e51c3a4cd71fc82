"""Kubernetes Events of verdicts: their pod, their text, and their repetition."""

import msgspec
import pytest

from api.pod_actions import PodAction
from api.verdicts import Culprit, How, VerdictState
from koordlet.identity.pods import PodContainer, PodFacts, PodTable
from koordlet.kube.events import MAX_RECENT, REPEAT_SECONDS, VerdictEvents
from tests.koordlet.kube.test_verdict_entries import BATCH, WEB, by, cgroup, with_cause


@pytest.fixture
def words() -> VerdictEvents:
    containers = (PodContainer("nginx", "a" * 64),)
    pods = (PodFacts("shop/web-1", uid=WEB, containers=containers), PodFacts("shop/batch", uid=BATCH))
    known = PodTable(pods, generation=1)
    return VerdictEvents(lambda: known)


def test_the_victims_pod_is_told_whom_it_loses_to(words: VerdictEvents) -> None:
    event, _ = words.events(with_cause(by(cgroup(BATCH), lost=0.4), "cpu", "contention"))
    assert (event.regarding.name, event.regarding.uid, event.type, event.reason) == (
        "web-1",
        WEB,
        "Warning",
        "Interference",
    )
    assert event.note == "shop/web-1/nginx lost 0.40 s/s waiting for CPU: 0.40 to shop/batch"
    assert event.related is not None
    assert event.related.name == "batch"


def test_the_culprits_pod_is_told_too(words: VerdictEvents) -> None:
    _, event = words.events(by(cgroup(BATCH), lost=0.4))
    assert (event.regarding.name, event.reason) == ("batch", "InterferesWithOthers")
    assert event.related is not None
    assert event.related.name == "web-1"


def test_the_same_again_is_the_same_event_though_amounts_differ(words: VerdictEvents) -> None:
    first = words.events(by(cgroup(BATCH), lost=0.4))
    again = words.events(by(cgroup(BATCH), lost=0.7, time=1000.0 + REPEAT_SECONDS))
    (other,) = words.events(by("/system.slice/x.service", lost=0.4))
    assert first == again
    assert first[0] != other
    assert other.related is None


def test_the_same_again_at_once_is_held_back_and_counted(words: VerdictEvents) -> None:
    for second in range(60):
        told = words.events(by(cgroup(BATCH), time=1000.0 + second))
        assert bool(told) == (second in (0, REPEAT_SECONDS))
    assert words.held_back == 58


def test_a_close_is_normal_and_an_update_is_nothing(words: VerdictEvents) -> None:
    verdict = by(cgroup(BATCH))
    closed, _ = words.events(msgspec.structs.replace(verdict, state=VerdictState.CLOSE))
    assert (closed.type, closed.reason) == ("Normal", "InterferenceEnded")
    assert words.events(msgspec.structs.replace(verdict, state=VerdictState.UPDATE)) == []


def test_ones_own_doing_is_not_called_interference(words: VerdictEvents) -> None:
    (event,) = words.events(with_cause(by("[own quota]"), "cpu", "own_quota"))
    assert event.reason == "SelfInflictedLoss"


def test_cgroups_outside_pods_have_no_event(words: VerdictEvents) -> None:
    assert words.events(by(cgroup(BATCH), victim="/system.slice/x.service")) == []
    assert words.unknown == 0
    assert words.events(by(cgroup(BATCH), victim=cgroup("f" * 8 + WEB[8:]))) == []
    assert words.unknown == 1, "a pod nobody told of is counted"


def test_the_memory_of_words_is_bounded(words: VerdictEvents) -> None:
    for number in range(2 * MAX_RECENT):
        words.events(msgspec.structs.replace(by("/x"), culprits=(Culprit(f"/{number}", 1.0, How.DIRECT),)))
    assert len(words._recent) == MAX_RECENT


def action(**given: object) -> PodAction:
    given = {"target": cgroup(BATCH), "what": "cpu.max 50000 100000", "strategy": "response", **given}
    return PodAction(reason="it costs others 0.4 s/s", time_seconds=1000.0, **given)  # type: ignore[arg-type]


def test_a_pod_that_is_limited_is_told_why_and_for_whom(words: VerdictEvents) -> None:
    (event,) = words.limits([action(verdict=f"{cgroup(WEB)}|cpu-contention")])
    assert (event.regarding.name, event.reason, event.type) == ("batch", "Limited", "Normal")
    assert event.related is not None
    assert event.related.name == "web-1"
    assert event.note == (
        "shop/batch is limited by cpu.max 50000 100000: it costs others 0.4 s/s, for shop/web-1/nginx (cpu-contention)"
    )


def test_a_release_is_told_and_repetitions_with_other_values_are_held_back(words: VerdictEvents) -> None:
    assert [each.reason for each in words.limits([action(), action(ended=True)])] == ["Limited", "LimitReleased"]
    assert words.limits([action(what="cpu.max 40000 100000"), action(ended=True)]) == []
    assert words.held_back == 2


def test_actions_outside_pods_have_no_event(words: VerdictEvents) -> None:
    assert words.limits([action(target="/batch.slice"), action(target=cgroup("f" * 8 + WEB[8:]))]) == []
    assert words.unknown == 1
