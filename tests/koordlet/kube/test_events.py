"""Kubernetes Events of verdicts: their pod, their text, and their repetition."""

import msgspec
import pytest

from api.verdicts import Culprit, How, VerdictState
from koordlet.kube.events import MAX_RECENT, REPEAT_SECONDS, VerdictEvents
from koordlet.kube.pods import PodIndex
from tests.koordlet.kube.test_annotation import BATCH, WEB, by, cgroup, pod, with_cause


@pytest.fixture
def words() -> VerdictEvents:
    book = PodIndex()
    book.change(None, pod("web-1", WEB))
    book.change(None, pod("batch", BATCH))
    return VerdictEvents(book)


def test_the_victims_pod_is_told_whom_it_loses_to(words: VerdictEvents) -> None:
    event = words.event(with_cause(by(cgroup(BATCH), lost=0.4), "cpu", "contention"))
    assert event is not None
    assert (event.regarding.name, event.regarding.uid, event.type, event.reason) == (
        "web-1",
        WEB,
        "Warning",
        "Interference",
    )
    assert event.note == "shop/web-1 lost 0.40 s/s waiting for CPU: 0.40 to shop/batch"
    assert event.related is not None
    assert event.related.name == "batch"


def test_the_same_again_is_the_same_event_though_amounts_differ(words: VerdictEvents) -> None:
    first = words.event(by(cgroup(BATCH), lost=0.4))
    again = words.event(by(cgroup(BATCH), lost=0.7, time=1000.0 + REPEAT_SECONDS))
    other = words.event(by("/system.slice/x.service", lost=0.4))
    assert first == again != other
    assert other is not None
    assert other.related is None


def test_the_same_again_at_once_is_held_back_and_counted(words: VerdictEvents) -> None:
    for second in range(60):
        told = words.event(by(cgroup(BATCH), time=1000.0 + second))
        assert (told is not None) == (second in (0, REPEAT_SECONDS))
    assert words.held_back == 58


def test_a_close_is_normal_and_an_update_is_nothing(words: VerdictEvents) -> None:
    verdict = by(cgroup(BATCH))
    closed = words.event(msgspec.structs.replace(verdict, state=VerdictState.CLOSE))
    assert closed is not None
    assert (closed.type, closed.reason) == ("Normal", "InterferenceEnded")
    assert words.event(msgspec.structs.replace(verdict, state=VerdictState.UPDATE)) is None


def test_ones_own_doing_is_not_called_interference(words: VerdictEvents) -> None:
    event = words.event(with_cause(by("[own quota]"), "cpu", "own_quota"))
    assert event is not None
    assert event.reason == "SelfInflictedLoss"


def test_cgroups_outside_pods_have_no_event(words: VerdictEvents) -> None:
    assert words.event(by(cgroup(BATCH), victim="/system.slice/x.service")) is None
    assert words.unknown == 0
    assert words.event(by(cgroup(BATCH), victim=cgroup("f" * 8 + WEB[8:]))) is None
    assert words.unknown == 1, "a pod nobody told of is counted"


def test_the_memory_of_words_is_bounded(words: VerdictEvents) -> None:
    for number in range(2 * MAX_RECENT):
        words.event(msgspec.structs.replace(by("/x"), culprits=(Culprit(f"/{number}", 1.0, How.DIRECT),)))
    assert len(words._recent) == MAX_RECENT
