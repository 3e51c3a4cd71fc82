"""One leader at a time: the decision by table, the competition against a server that misbehaves."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random

import msgspec
import pytest

from api.kube.meta import ObjectMeta
from cluster import LEASES, Backoff, ClientSettings, Elector, Key, LeaseSettings
from cluster.leases import Lease, LeaseSpec, ObservedLease, claimed, may_take, next_look_seconds, observe
from cluster.twin import Fault, FaultType, Twin
from tests.cluster.conftest import Site
from tests.waiting import wait_for

KEY = Key("d", "scheduler")
WALL = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
IMPATIENT = ClientSettings(timeout_seconds=0.6, attempts=1, backoff=Backoff(0.01, 0.05))


def run_for(identity: str, key: Key = KEY) -> LeaseSettings:
    return LeaseSettings(key, identity, duration_seconds=3.0, renew_deadline_seconds=1.6, retry_seconds=0.05)


def lease(holder: str | None, duration: int | None = 15, version: str = "1") -> Lease:
    spec = LeaseSpec(holder_identity=holder, lease_duration_seconds=duration, lease_transitions=4)
    return Lease(metadata=ObjectMeta(name="scheduler", namespace="d", resource_version=version), spec=spec)


@pytest.mark.parametrize(
    ("holder", "duration", "age_seconds", "expected"),
    [
        ("me", 15, 0.0, True),
        ("", 15, 0.0, True),
        (None, None, 0.0, True),
        ("other", 15, 0.0, False),
        ("other", 15, 15.0, False),
        ("other", 15, 15.1, True),
        # The holder's own duration counts, not ours of 3 seconds.
        ("other", 60, 15.1, False),
        ("other", None, 3.1, True),
    ],
)
def test_a_lease_is_taken_only_when_free_own_or_abandoned(
    holder: str | None, duration: int | None, age_seconds: float, expected: bool
) -> None:
    observation = ObservedLease(lease(holder, duration), 100.0)
    assert may_take(observation, run_for("me"), 100.0 + age_seconds) is expected


def test_a_lease_ages_only_while_nothing_changes() -> None:
    first = observe(None, lease("other"), 10.0)
    assert observe(first, lease("other"), 20.0).since_seconds == 10.0
    assert observe(first, lease("other", version="2"), 20.0).since_seconds == 20.0


@pytest.mark.parametrize(
    ("age_seconds", "least", "most"),
    [
        # Just renewed: the next renewal is due in 2 s at the earliest.
        (0.0, 1.6, 1.6),
        # Due: looked for until it is there.
        (1.6, 0.2, 0.2),
        (3.9, 0.2, 0.2),
        # Long overdue: the holder may be gone.
        (4.1, 2.0, 2.4),
        # Where the lease runs out before the usual look, at that moment.
        (13.5, 1.5, 1.7),
        (14.99, 0.01, 0.21),
        # It could not be taken although it had run out: no sooner than usual.
        (15.5, 2.0, 2.4),
    ],
)
def test_a_candidate_looks_after_each_renewal_and_when_the_lease_runs_out(
    age_seconds: float, least: float, most: float
) -> None:
    observation = ObservedLease(lease("other"), 100.0)
    looks = [
        next_look_seconds(observation, LeaseSettings(KEY, "me"), 100.0 + age_seconds, Random(seed))
        for seed in range(50)
    ]
    assert least - 1e-6 <= min(looks)
    assert max(looks) <= most + 1e-6


def test_a_free_or_unknown_lease_is_looked_at_as_usual() -> None:
    for observation in (None, ObservedLease(lease(""), 0.0)):
        assert 2.0 <= next_look_seconds(observation, LeaseSettings(KEY, "me"), 1.0, Random(0)) <= 2.4


def test_claiming_counts_the_transition_and_renewing_does_not() -> None:
    taken = claimed(lease("other"), run_for("me"), WALL)
    assert (taken.spec.holder_identity, taken.spec.lease_transitions) == ("me", 5)
    assert taken.spec.acquire_time == taken.spec.renew_time == "2026-01-02T03:04:05.678901Z"
    renewed = claimed(taken, run_for("me"), WALL.replace(second=9))
    assert (renewed.spec.acquire_time, renewed.spec.lease_transitions) == (taken.spec.acquire_time, 5)
    assert renewed.spec.renew_time != taken.spec.renew_time
    assert renewed.metadata.resource_version == "1"


def test_a_lease_lasts_no_less_than_its_holder_counts_on() -> None:
    written = claimed(lease(None), LeaseSettings(KEY, "me", 2.4, 2.2, 0.5), WALL)
    assert written.spec.lease_duration_seconds == 3


@pytest.mark.parametrize(
    "times",
    [
        pytest.param((15, 15, 2), id="renew-at-expiry"),
        pytest.param((15, 10, 10), id="retry-at-renew"),
        pytest.param((15, 10, 0), id="no-retry"),
    ],
)
def test_times_without_slack_are_refused(times: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="renew_deadline_seconds"):
        LeaseSettings(KEY, "me", *times)


def test_one_leads_and_hands_over_on_stopping(site: Site) -> None:
    changes: list[tuple[str, bool]] = []
    key = site.key("scheduler")

    def teller(name: str) -> Callable[[bool], None]:
        return lambda leads: changes.append((name, leads))

    first = Elector(site.connect(IMPATIENT), run_for("a", key), teller("a"))
    second = Elector(site.connect(IMPATIENT), run_for("b", key), teller("b"))
    first.start()
    wait_for(lambda: first.leading)
    second.start()
    time.sleep(0.3)
    assert not second.leading
    first.stop()
    assert not first.leading
    # The lease was given up, so the other need not wait until it is abandoned.
    wait_for(lambda: second.leading, 2.0)
    second.stop()
    assert changes == [("a", True), ("a", False), ("b", True), ("b", False)]
    assert site.client.get(LEASES, key)["spec"]["holderIdentity"] == ""


@pytest.mark.parametrize("hours", [-5, 5], ids=["behind", "ahead"])
def test_the_wall_clock_of_a_holder_does_not_matter(twin: Twin, hours: int) -> None:
    """A holder whose clock is hours off keeps its lease, and loses it like others when it renews no more."""
    held = claimed(lease("other", version=""), run_for("other"), datetime.now(UTC) + timedelta(hours=hours))
    with twin.client() as client:
        client.create(LEASES.of(Lease, complete=True), held)
        elector = Elector(client, run_for("me"))
        assert not elector.try_once()
        assert not elector.try_once()
        wait_for(elector.try_once, interval_seconds=0.2)


def test_the_leader_steps_down_before_another_can_take_over(twin: Twin) -> None:
    with twin.client(IMPATIENT) as near, twin.client(IMPATIENT) as far:
        first, second = Elector(near, run_for("a")), Elector(far, run_for("b"))
        first.start()
        wait_for(lambda: first.leading)
        # Renewals hang: their answers come after the client gave up.
        twin.faults.add(Fault(FaultType.DROP, frozenset({"update"}), "leases"))
        second.start()
        both = False
        deadline = time.monotonic() + 30.0
        while time.monotonic() < deadline and first.leading:
            both = both or second.leading
            time.sleep(0.005)
        assert not first.leading
        assert not both
        twin.faults.clear()
        wait_for(lambda: first.leading != second.leading)
        first.stop()
        second.stop()


def test_a_slow_server_costs_nobody_the_lead(twin: Twin) -> None:
    changes: list[bool] = []
    twin.faults.add(Fault(FaultType.DELAY, seconds=0.2))
    with twin.client(IMPATIENT) as client:
        elector = Elector(client, run_for("a"), changes.append)
        elector.start()
        wait_for(lambda: elector.leading)
        time.sleep(2.0)
        assert elector.leading
        elector.stop()
    assert changes == [True, False]


def test_a_renewal_whose_answer_was_lost_is_found_out(twin: Twin) -> None:
    with twin.client(IMPATIENT) as client:
        elector = Elector(client, run_for("a"))
        assert elector.try_once()
        twin.faults.add(Fault(FaultType.DROP, frozenset({"update"}), times=1, after=True))
        elector.try_once()
        assert elector.try_once()
        stored = msgspec.convert(twin.objects(LEASES)[KEY], Lease)
        assert (stored.spec.holder_identity, stored.spec.lease_transitions) == ("a", 1)
