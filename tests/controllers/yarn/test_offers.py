"""Shares of batch resources: tables, and that no share is ever sold twice, whatever both sides do."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.capacity.pods import Amounts
from controllers.yarn.offers import ZERO, BatchState, decide
from controllers.yarn.protocol import MIB, NOTHING, Capability, NodeReport
from controllers.yarn.settings import SharingSettings

GIB = 1 << 30
EXACT = SharingSettings(step_percent=0)


def batch(
    origin: Amounts = (20_000, 40 * GIB),
    asked: Amounts = ZERO,
    held: Amounts = ZERO,
    for_pods: Amounts | None = None,
    lingering: Amounts = ZERO,
) -> BatchState:
    given_to_pods = (origin[0] - held[0], origin[1] - held[1]) if for_pods is None else for_pods
    return BatchState(origin=origin, for_pods=given_to_pods, asked=asked, held=held, lingering=lingering)


def report(
    total: tuple[int, int] = (0, 0), used: tuple[int, int] = (0, 0), state: str = "RUNNING", health: str = ""
) -> NodeReport:
    """Amounts in virtual cores and GiB."""
    have, hold = (Capability(cores, gib * 1024) for cores, gib in (total, used))
    return NodeReport("w1:45454", "w1", state, have, hold, health)


def test_pods_are_offered_less_before_yarn_is_offered_more() -> None:
    first = decide(batch(), report(), EXACT)
    assert first.held == (10_000, 20 * GIB)
    assert first.offer == NOTHING, "pods may still take all of it"
    second = decide(batch(held=first.held), report(), EXACT)
    assert second.offer == Capability(10, 20 * 1024)
    assert second.held == first.held


def test_yarn_gives_back_before_pods_get_more() -> None:
    held = (10_000, 20 * GIB)
    state = batch(asked=(10_000, 20 * GIB), held=held)
    decision = decide(state, report(total=(10, 20)), EXACT)
    assert decision.offer == Capability(5, 10 * 1024)
    assert decision.held == held, "the ResourceManager still offers it"
    after = decide(state, report(total=(5, 10)), EXACT)
    assert after.held == (5_000, 10 * GIB)


def test_placed_pods_have_precedence_over_containers() -> None:
    decision = decide(batch(origin=(10_000, 20 * GIB), asked=(8_000, 4 * GIB)), report((9, 18), (6, 18)), EXACT)
    assert decision.offer == Capability(2, 16 * 1024)
    assert decision.held == (9_000, 18 * GIB)
    assert "less memory than its containers hold" in decision.reason


def test_small_changes_are_not_worth_a_request() -> None:
    sharing = SharingSettings(step_percent=10)
    held = (10_000, 20 * GIB)
    assert decide(batch(asked=(2_000, 4 * GIB), held=held), report((10, 20)), sharing).offer == Capability(
        10, 20 * 1024
    )
    assert decide(batch(asked=(6_000, 12 * GIB), held=held), report((10, 20)), sharing).offer == Capability(
        7, 14 * 1024
    )
    full = batch(origin=(10_500, 21 * GIB), asked=(1_000, 2 * GIB), held=held)
    assert decide(full, report((10, 20), (10, 20)), sharing).offer == Capability(9, 19 * 1024), "what is unsafe is cut"


def test_what_yarn_may_get_at_most() -> None:
    limited = SharingSettings(step_percent=0, max_percent=25, free_percent=100)
    state = batch(held=(5_000, 10 * GIB))
    assert decide(state, report(), limited).offer == Capability(5, 10 * 1024)


def test_first_come_offers_all_and_withholds_what_is_used() -> None:
    # Koordinator's own case: batch 50000/120Gi, YARN 10000/10Gi.
    sharing = SharingSettings(mode="first-come")
    decision = decide(batch((50_000, 120 * GIB), asked=(15_000, 20 * GIB)), report((50, 120), (10, 10)), sharing)
    assert decision.held == (10_000, 10 * GIB)
    assert decision.offer == Capability(35, 100 * 1024)


@pytest.mark.parametrize(
    ("state", "offer", "held"),
    [
        pytest.param("UNHEALTHY", NOTHING, (4_000, 8 * GIB), id="unhealthy"),
        pytest.param("DECOMMISSIONING", None, (2_000, 6 * GIB), id="decommissioning"),
        pytest.param("DECOMMISSIONED", None, (1_000, 6 * GIB), id="decommissioned"),
        pytest.param("LOST", None, (1_000, 6 * GIB), id="lost"),
        pytest.param("REBOOTED", None, (1_000, 6 * GIB), id="rebooted"),
        pytest.param("SHUTDOWN", None, (1_000, 6 * GIB), id="shut-down"),
        pytest.param("NEW", None, (1_000, 6 * GIB), id="new"),
        pytest.param("SLEEPING", None, (1_000, 6 * GIB), id="unknown"),
    ],
)
def test_states_in_which_nothing_is_offered(state: str, offer: Capability | None, held: Amounts) -> None:
    lingering = (1_000, 6 * GIB)
    decision = decide(batch(lingering=lingering), report((4, 8), (2, 4), state), SharingSettings())
    assert (decision.offer, decision.held) == (offer, held)


def test_an_unknown_node_manager_holds_what_its_containers_hold() -> None:
    decision = decide(batch(lingering=(500, GIB)), None, SharingSettings())
    assert (decision.offer, decision.held) == (None, (500, GIB))


def test_a_resource_of_the_node_managers_own_configuration_is_cut_at_once() -> None:
    decision = decide(batch(), report((96, 512)), EXACT)
    assert decision.offer == Capability(10, 20 * 1024)
    assert decision.held == (20_000, 40 * GIB), "no more than there is"


@dataclass
class Node:
    """Both sides of a node, each acting on what it is told; amounts in millicores and bytes."""

    origin: Amounts = (16_000, 32 * GIB)
    for_pods: Amounts = (16_000, 32 * GIB)
    annotated: Amounts = ZERO
    asked: Amounts = ZERO
    total: Capability = NOTHING
    used: Capability = NOTHING
    offered: list[Capability] = field(default_factory=list)

    def plan(self) -> None:
        state = BatchState(
            origin=self.origin, for_pods=self.for_pods, asked=self.asked, held=self.annotated, lingering=ZERO
        )
        seen = NodeReport("w:1", "w", "RUNNING", self.total, self.used)
        decision = decide(state, seen, SharingSettings(step_percent=3, free_percent=60))
        self.annotated = decision.held
        self.offered = [] if decision.offer is None else [decision.offer]

    def send(self) -> None:
        if self.offered:
            self.total = self.offered[0]

    def publish(self) -> None:
        """The manager of the cluster acts on the annotation."""
        self.for_pods = (max(self.origin[0] - self.annotated[0], 0), max(self.origin[1] - self.annotated[1], 0))

    def place(self, cpu: int, memory: int) -> None:
        """The scheduler places a pod where it fits."""
        wanted = (self.asked[0] + cpu, self.asked[1] + memory)
        if wanted[0] <= self.for_pods[0] and wanted[1] <= self.for_pods[1]:
            self.asked = wanted

    def end_pods(self) -> None:
        self.asked = ZERO

    def allocate(self, vcores: int, mib: int) -> None:
        """YARN's scheduler starts a container where it fits."""
        wanted = Capability(self.used.vcores + vcores, self.used.mib + mib)
        if wanted.vcores <= self.total.vcores and wanted.mib <= self.total.mib:
            self.used = wanted

    def end_containers(self) -> None:
        self.used = NOTHING

    def sold(self) -> Amounts:
        return (
            max(self.asked[0], self.for_pods[0]) + self.total.vcores * 1000,
            max(self.asked[1], self.for_pods[1]) + self.total.mib * MIB,
        )


STEPS = ["plan", "send", "publish", "end_pods", "end_containers"]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(STEPS),
            st.tuples(st.just("place"), st.integers(0, 8_000), st.integers(0, 16 * GIB)),
            st.tuples(st.just("allocate"), st.integers(0, 8), st.integers(0, 16 * 1024)),
        ),
        max_size=60,
    )
)
def test_nothing_is_sold_twice(steps: list[str | tuple[str, int, int]]) -> None:
    node = Node()
    for step in steps:
        if isinstance(step, str):
            # An offer that is on its way when the next plan is made counts as made: the board sees to that.
            if step == "plan":
                node.send()
            getattr(node, step)()
        else:
            getattr(node, step[0])(*step[1:])
        assert node.sold()[0] <= node.origin[0]
        assert node.sold()[1] <= node.origin[1]
        assert node.asked[1] + node.used.mib * MIB <= node.origin[1]


def test_both_sides_reach_their_shares() -> None:
    node = Node()
    for _ in range(4):
        node.plan()
        node.publish()
        node.plan()
        node.send()
    assert node.total == Capability(9, 19660)
    node.place(2_000, 4 * GIB)
    node.allocate(4, 8192)
    for _ in range(4):
        node.plan()
        node.send()
        node.publish()
    # Of 10 free cores and 20 free GiB YARN has six tenths.
    assert abs(node.total.vcores - 10) <= 1
    assert abs(node.total.mib - (8 + 12) * 1024) <= 1024
