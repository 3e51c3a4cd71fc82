"""Settings that are applied alone, between two steps and amid one, while all others stay as they are."""

from collections.abc import Collection

import pytest

from api.intents import Knob, Setting, Strength
from api.qos import QoSClass
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.lifecycle import restore
from koordlet.enforcer.writer import KernelWriter, Texts
from koordlet.host.attributes import Attribute
from tests.frames import cgroup_info
from tests.koordlet.enforcer.hosts import FakeHost, audit, outcomes, want

PODS = [f"/batch/pod-{number}" for number in range(20)]
PRESENT = tuple(
    cgroup_info(number, path, path, QoSClass.BE.value) for number, path in enumerate(["/batch", "/batch/hog", *PODS], 1)
)
STORM = [want(Knob.CPUSET_CPUS, "0-1", target=path) for path in PODS]
IDLE = want(Knob.CPU_IDLE, "1", target="/batch/hog", strategy="response", strength=Strength.INVISIBLE)


class Counting(KernelWriter):
    """Counts reads, and notes what is written in order."""

    def __init__(self) -> None:
        self.reads = 0
        self.written: list[str] = []

    def read(self, attribute: Attribute) -> Texts:
        self.reads += 1
        return super().read(attribute)

    def write(self, attribute: Attribute, value: str, expected: Collection[str], identity: str) -> None:
        super().write(attribute, value, expected, identity)
        self.written.append(attribute.path.rpartition("/")[2])


@pytest.fixture
def busy(host: FakeHost) -> FakeHost:
    for path in ("/batch", "/batch/hog", *PODS):
        host.make(path)
    return host


def test_one_setting_is_applied_and_nothing_else_is_looked_at(busy: FakeHost) -> None:
    writer = Counting()
    enforcer = busy.enforcer(writer=writer)
    enforcer.step(STORM, PRESENT, now=busy.clock)
    writer.reads = 0
    events = enforcer.apply_now([IDLE], [*STORM, IDLE], busy.later(0.01))
    assert events is not None
    assert [(event.target, event.knob, event.outcome) for event in events] == [("/batch/hog", "cpu.idle", Outcome.SET)]
    assert writer.reads < 5
    assert busy.text("/batch/hog", "cpu.idle") == "1"
    assert len(enforcer.active_settings()) == len(STORM) + 1
    assert outcomes(enforcer.step([*STORM, IDLE], now=busy.later(1))) == []
    assert [line["outcome"] for line in audit(busy)].count("set") == len(STORM) + 1
    enforcer.close(busy.later(1))
    assert busy.text("/batch/hog", "cpu.idle") == "0"
    assert restore(busy.settings(), busy.tree) == []


def test_what_is_urgent_comes_between_two_writes_of_a_step(busy: FakeHost) -> None:
    writer = Counting()
    enforcer = busy.enforcer(writer=writer)
    enforcer.step([], PRESENT, now=busy.clock)
    trips, answers = [IDLE], []

    def serve() -> None:
        if trips and len(writer.written) >= 3:
            answers.append(enforcer.apply_now([trips.pop()], [*STORM, IDLE]))

    enforcer.call_between(serve)
    events = enforcer.step(STORM, now=busy.later(1))
    (found,) = answers
    assert [event.outcome for event in found or ()] == [Outcome.SET]
    assert writer.written.index("cpu.idle") == 3
    assert writer.written.count("cpuset.cpus") == len(STORM)
    assert [event.outcome for event in events] == [Outcome.SET] * len(STORM), "the step tells of its own"
    assert len(enforcer.active_settings()) == len(STORM) + 1
    enforcer.close(busy.later(1))
    assert restore(busy.settings(), busy.tree) == []
    assert busy.text("/batch/hog", "cpu.idle") == "0"


def test_budgets_count_what_is_urgent_once(busy: FakeHost) -> None:
    enforcer = busy.enforcer(changes_per_minute=25)  # a fifth of them for invisible changes alone
    enforcer.step([], PRESENT, now=busy.clock)
    trips, answers = [IDLE], []

    def serve() -> None:
        if trips:
            answers.append(enforcer.apply_now([trips.pop()], [*STORM, IDLE]))

    enforcer.call_between(serve)
    events = enforcer.step(STORM, now=busy.later(1))
    assert [event.outcome for event in answers[0] or ()] == [Outcome.SET]
    assert [event.outcome for event in events].count(Outcome.SET) == len(STORM) - 1
    assert [event.outcome for event in events].count(Outcome.OVER_BUDGET) == 1


def test_what_is_under_way_itself_takes_a_step_of_its_own(busy: FakeHost) -> None:
    enforcer = busy.enforcer()
    enforcer.step([], PRESENT, now=busy.clock)
    weight = want(Knob.CPU_WEIGHT, "20", target="/batch/hog")
    answers = []
    enforcer.call_between(lambda: answers.append(enforcer.apply_now([IDLE], [weight, IDLE])))
    enforcer.step([weight], now=busy.later(1))
    assert answers
    assert set(answers) == {None}
    assert busy.text("/batch/hog", "cpu.idle") == "0"


@pytest.mark.parametrize(
    "setting",
    [
        want(Knob.CPU_MAX, "20000 100000", target="/batch/hog", strength=Strength.INVISIBLE),
        want(Knob.CPU_IDLE, "1", target="/batch/hog", strength=Strength.MILD),
    ],
    ids=["may-need-another", "is-counted"],
)
def test_others_take_a_whole_step(busy: FakeHost, setting: Setting) -> None:
    enforcer = busy.enforcer()
    enforcer.step([], PRESENT, now=busy.clock)
    assert enforcer.apply_now([setting], [setting], busy.later(0.01)) is None
    assert enforcer.active_settings() == {}


def test_nothing_urgent_before_the_first_step_after_the_last_or_while_stopped(busy: FakeHost) -> None:
    stop = busy.root / "stop"
    enforcer = busy.enforcer(stop_file=str(stop))
    assert enforcer.apply_now([IDLE], [IDLE], busy.clock) is None
    enforcer.step([], PRESENT, now=busy.clock)
    stop.touch()
    assert enforcer.apply_now([IDLE], [IDLE], busy.later(0.01)) is None
    stop.unlink()
    late = busy.later(enforcer.longest_pause_seconds + 1)
    assert enforcer.apply_now([IDLE], [IDLE], late) is None
    enforcer.close(busy.later(1))
    assert enforcer.apply_now([IDLE], [IDLE], busy.later(1)) is None
    assert busy.text("/batch/hog", "cpu.idle") == "0"


def test_protection_and_conflicts_hold_for_what_is_urgent(busy: FakeHost) -> None:
    enforcer = busy.enforcer(protected=("/batch/hog",))
    enforcer.step([], PRESENT, now=busy.clock)
    events = enforcer.apply_now([IDLE], [IDLE], busy.later(0.01))
    assert [event.outcome for event in events or ()] == [Outcome.PROTECTED]
    assert busy.text("/batch/hog", "cpu.idle") == "0"


def test_protocol_state_below_what_is_urgent_comes_back(busy: FakeHost) -> None:
    enforcer = busy.enforcer()
    state = want(Knob.CPU_WEIGHT, "20", target="/batch/hog", strategy="runtime_hooks", protocol_state=True)
    enforcer.step([state], PRESENT, now=busy.clock)
    events = enforcer.apply_now([IDLE], [IDLE], busy.later(0.01), silent=("runtime_hooks",))
    assert Outcome.SET in [event.outcome for event in events or ()]
    assert busy.text("/batch/hog", "cpu.idle") == "1"
    enforcer.step([state], now=busy.later(1))
    assert busy.text("/batch/hog", "cpu.idle") == "0"
    assert enforcer.holds(state)
