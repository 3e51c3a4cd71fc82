"""The gang state machine: nothing binds before all members have a place, and none waits without a reason."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler.gang.gangs import Allow, Gangs, GangWait
from scheduler.gang.spec import GangSpec, MatchPolicy

A = GangSpec("ns/a", 3, 3, group=("ns/a",))


def gangs(*specs: GangSpec, pods: int = 3) -> Gangs:
    made = Gangs()
    for spec in specs:
        made.declare(spec)
        for number in range(pods):
            made.pod_seen(f"{spec.id}-{number}", spec.id, None)
    return made


def test_missing_members_are_counted() -> None:
    made = gangs(A, pods=1)
    assert made.shortage("ns/a-0") == "gang ns/a has 1 of 3 members, 2 missing"
    made.pod_seen("ns/a-1", "ns/a", None)
    made.pod_seen("ns/a-2", "ns/a", None)
    assert made.shortage("ns/a-0") is None
    made.pod_gone("ns/a-2")
    assert made.shortage("ns/a-0") == "gang ns/a has 2 of 3 members, 1 missing"


def test_a_gang_without_its_pod_group_says_so() -> None:
    made = Gangs()
    made.pod_seen("p", "ns/a", None)
    assert made.shortage("p") == "gang ns/a is unknown: its PodGroup does not exist"
    made.pod_seen("q", "ns/a", None, problem="min-available is 'x'")
    assert made.shortage("p") == "gang ns/a is unknown: min-available is 'x'"


def test_a_group_waits_for_its_other_gangs() -> None:
    group = ("ns/a", "other/b")
    made = gangs(replace(A, group=group))
    assert made.shortage("ns/a-0") == "gang ns/a is bound to gang other/b, which does not exist yet"
    made.declare(GangSpec("other/b", 1, 1, group=group))
    assert made.shortage("ns/a-0") == "gang other/b has 0 of 1 members, 1 missing"
    made.pod_seen("other/b-0", "other/b", None)
    for number in range(3):
        assert isinstance(made.place(f"ns/a-{number}"), GangWait)
    assert made.place("other/b-0") == Allow(("ns/a-0", "ns/a-1", "ns/a-2", "other/b-0"))


def test_the_last_member_lets_all_go() -> None:
    made = gangs(A)
    assert made.place("ns/a-0") == GangWait(600.0, "gang ns/a has 1 of 3 members placed, 2 missing")
    assert isinstance(made.place("ns/a-1"), GangWait)
    assert made.place("ns/a-2") == Allow(("ns/a-0", "ns/a-1", "ns/a-2"))


def test_waits_longer_than_a_quarter_of_an_hour_are_kept() -> None:
    assert gangs(replace(A, wait_seconds=1500.0)).place("ns/a-0") == GangWait(
        1500.0, "gang ns/a has 1 of 3 members placed, 2 missing"
    )


def test_one_attempt_tries_every_member_and_lets_go_on_failure() -> None:
    made = gangs(A)
    made.begin("ns/a-0")
    assert made.untried("ns/a-0") == ["ns/a-1", "ns/a-2"]
    made.place("ns/a-0")
    made.begin("ns/a-1")
    assert made.fail("ns/a-1", "no node has 4 free cores") == ["ns/a-0"]
    assert made.unplace("ns/a-0") == []
    attempt = made.begin("ns/a-2")
    assert attempt is not None
    assert attempt.failure == ("gang ns/a has 1 of 3 members placed, 2 missing; ns/a-1: no node has 4 free cores")
    assert made.untried("ns/a-2") == []
    assert made.close("ns/a-2") == []
    again = made.begin("ns/a-1")
    assert again is not None
    assert again.failure == ""


def test_closing_an_incomplete_attempt_lets_go() -> None:
    made = gangs(A, pods=2)
    made.begin("ns/a-0")
    made.place("ns/a-0")
    made.begin("ns/a-1")
    made.place("ns/a-1")
    assert made.close("ns/a-1") == ["ns/a-0", "ns/a-1"]


def test_a_loose_gang_keeps_what_it_has() -> None:
    made = gangs(replace(A, strict=False))
    made.begin("ns/a-0")
    made.place("ns/a-0")
    made.begin("ns/a-1")
    assert made.fail("ns/a-1", "full") == []
    assert made.close("ns/a-1") == []
    assert isinstance(made.place("ns/a-1"), GangWait)
    assert made.place("ns/a-2") == Allow(("ns/a-0", "ns/a-1", "ns/a-2"))


def complete_pair() -> Gangs:
    """Two gangs of one member that bind together, one as good as bound; the other's pod is gone since."""
    made = Gangs()
    for name in ("ns/a", "ns/b"):
        made.pod_seen(f"{name}-0", name, GangSpec(name, 1, 1, group=("ns/a", "ns/b")))
    made.place("ns/a-0")
    assert made.place("ns/b-0") == Allow(("ns/a-0", "ns/b-0"))
    made.pod_gone("ns/a-0")
    assert made.unplace("ns/b-0") == []
    return made


def test_what_was_complete_once_goes_on_without_a_gang_that_is_gone() -> None:
    made = complete_pair()
    assert made.place("ns/b-0") == Allow(("ns/b-0",))
    assert not made.held("ns/b-0")


def test_a_gang_that_starts_anew_lets_go_beside_one_that_was_complete() -> None:
    made = complete_pair()
    made.pod_seen("ns/a-1", "ns/a", GangSpec("ns/a", 2, 2, group=("ns/a", "ns/b")))
    for pod, expected in (("ns/a-1", GangWait), ("ns/b-0", Allow)):
        made.begin(pod)
        assert isinstance(made.place(pod), expected)
    assert made.close("ns/b-0") == ["ns/a-1"]


@pytest.mark.parametrize(
    ("policy", "running", "complete"),
    [
        pytest.param(MatchPolicy.ONCE_SATISFIED, True, True, id="once satisfied is remembered"),
        pytest.param(MatchPolicy.ONCE_SATISFIED, False, True, id="even when all finished"),
        pytest.param(MatchPolicy.WAITING_AND_RUNNING, True, True, id="running members count"),
        pytest.param(MatchPolicy.WAITING_AND_RUNNING, False, False, id="finished members do not"),
        pytest.param(MatchPolicy.ONLY_WAITING, True, False, id="only waiting members count"),
    ],
)
def test_a_replacement_after_a_restart(policy: MatchPolicy, running: bool, complete: bool) -> None:
    made = gangs(replace(A, policy=policy))
    for number in (0, 1):
        made.pod_bound(f"ns/a-{number}", running=running)
    assert isinstance(made.place("ns/a-2"), Allow) is complete


def test_a_gang_known_from_annotations_goes_with_its_last_pod() -> None:
    made = Gangs()
    made.pod_seen("p", "ns/a", A)
    made.pod_seen("q", "ns/a", replace(A, minimum=9))
    assert made.by_id["ns/a"].spec == A
    made.pod_gone("p")
    made.pod_gone("q")
    assert made.by_id == {}


def test_a_pod_group_overrules_annotations_and_leaves_a_reason() -> None:
    made = Gangs()
    made.pod_seen("p", "ns/a", A)
    made.declare(replace(A, minimum=1))
    assert made.shortage("p") is None
    made.withdraw("ns/a")
    assert made.shortage("p") == "gang ns/a is unknown: its PodGroup is gone"


def test_pods_without_a_gang_are_free() -> None:
    made = Gangs()
    assert made.shortage("p") is None
    assert made.begin("p") is None
    assert made.place("p") == Allow(("p",))
    assert made.fail("p", "full") == made.unplace("p") == made.close("p") == []


class RandomCluster(RuleBasedStateMachine):
    """Two strict gangs bound together and a lone one share a few slots; anything may happen to them."""

    GROUP = ("ns/a", "ns/b")
    SPECS = (
        GangSpec("ns/a", 2, 2, group=GROUP, policy=MatchPolicy.ONLY_WAITING),
        GangSpec("ns/b", 3, 3, group=GROUP, policy=MatchPolicy.ONLY_WAITING),
        GangSpec("ns/c", 2, 4, group=("ns/c",)),
    )
    pods = st.sampled_from([f"{gang}-{n}" for gang in ("ns/a", "ns/b", "ns/c") for n in range(4)])

    def __init__(self) -> None:
        super().__init__()
        self.gangs = Gangs()
        for spec in self.SPECS:
            self.gangs.declare(spec)
        self.slots = 6
        self.held: set[str] = set()
        self.allowed: set[str] = set()
        self.complete: set[str] = set()
        self.alive: set[str] = set()

    @initialize()
    def create_enough(self) -> None:
        for spec in self.SPECS:
            for number in range(spec.minimum):
                self.create(f"{spec.id}-{number}")

    def let_go(self, pods: list[str]) -> None:
        for pod in pods:
            if pod not in self.allowed:
                self.held.discard(pod)
                self.let_go(self.gangs.unplace(pod))

    @rule(pod=pods)
    def create(self, pod: str) -> None:
        self.alive.add(pod)
        self.gangs.pod_seen(pod, pod[:4], None)

    @rule(pod=pods)
    def delete(self, pod: str) -> None:
        self.alive.discard(pod)
        self.held.discard(pod)
        self.allowed.discard(pod)
        self.gangs.pod_gone(pod)

    @rule(pod=pods)
    def attempt_group(self, pod: str) -> None:
        if pod not in self.alive or pod in self.held or self.gangs.shortage(pod):
            return
        queue = [pod]
        while queue:
            member = queue.pop(0)
            attempt = self.gangs.begin(member)
            assert attempt is not None
            if attempt.failure or len(self.held) >= self.slots:
                self.let_go(self.gangs.fail(member, attempt.failure or "no slot"))
            else:
                self.held.add(member)
                answer = self.gangs.place(member)
                if isinstance(answer, Allow):
                    assert self.everybody_has_a_place(member)
                    self.complete.add(member[:4])
                    self.allowed.update(answer.pods)
                    for each in answer.pods:
                        self.gangs.pod_bound(each)
            queue = self.gangs.untried(member)[:1]
        self.let_go(self.gangs.close(pod))

    def everybody_has_a_place(self, pod: str) -> bool:
        if pod[:4] == "ns/c" and "ns/c" in self.complete:
            return True
        gangs = ("ns/c",) if pod[:4] == "ns/c" else self.GROUP
        held = {gang: sum(each[:4] == gang for each in self.held) for gang in gangs}
        return all(held[spec.id] >= spec.minimum for spec in self.SPECS if spec.id in gangs)

    @rule(pod=pods)
    def time_out(self, pod: str) -> None:
        if pod in self.held and pod not in self.allowed:
            self.held.discard(pod)
            self.let_go(self.gangs.unplace(pod))

    @rule(slots=st.integers(0, 8))
    def resize(self, slots: int) -> None:
        self.slots = max(slots, len(self.held))

    @precondition(lambda self: self.alive)
    @invariant()
    def nobody_holds_a_place_between_attempts_without_being_allowed(self) -> None:
        assert self.held <= self.allowed

    @invariant()
    def the_gangs_agree(self) -> None:
        waiting = set().union(*(gang.waiting for gang in self.gangs.by_id.values()))
        assert waiting <= self.held


RandomCluster.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestRandomCluster = RandomCluster.TestCase
