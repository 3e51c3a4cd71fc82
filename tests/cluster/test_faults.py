"""Under faults: copies converge to the truth, bindings are neither lost nor doubled, budgets hold."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.crds import WORKLOAD_PROFILE
from cluster import (
    CONFIG_MAPS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    AlreadyExists,
    Backoff,
    Binding,
    BindOutcome,
    Client,
    ClientSettings,
    ClusterError,
    DeleteOptions,
    DeltaType,
    Document,
    EvictionOutcome,
    Informer,
    InformerSettings,
    Key,
    Query,
    StoreDelta,
    Unavailable,
    bind,
    custom,
    evict,
    merge_patch,
)
from cluster.twin import Fault, FaultType, Twin, TwinSettings
from tests.cluster.conftest import PROMPTLY_SECONDS, pod
from tests.waiting import wait_for

QUICK = Backoff(initial_seconds=0.002, maximum_seconds=0.02)
PATIENT = ClientSettings(
    requests_per_second=1e6, burst=1_000_000, timeout_seconds=5, attempts=40, backoff=QUICK, page_size=4
)
IMPATIENT = ClientSettings(requests_per_second=1e6, burst=1_000_000, timeout_seconds=5, attempts=1, backoff=QUICK)
WRITES = frozenset({"create", "patch", "update", "delete", "bind", "evict"})


def brisk(silence_seconds: float = 0.6) -> InformerSettings:
    return InformerSettings(silence_seconds=silence_seconds, backoff=QUICK)


class Follower:
    """Applies deltas as a subscriber would, and checks that each is a change of what it has."""

    def __init__(self) -> None:
        self.state: dict[Key, str] = {}
        self.wrong: list[StoreDelta[Document]] = []
        self.deltas = 0

    def __call__(self, deltas: Sequence[StoreDelta[Document]]) -> None:
        for delta in deltas:
            self.deltas += 1
            before, after = _version(delta.old), _version(delta.new)
            known = self.state.get(delta.key)
            if delta.type is DeltaType.ADDED:
                fine = known is None and after is not None
            elif delta.type is DeltaType.UPDATED:
                fine = known is not None and before == known and after not in (None, known)
            else:
                fine = known is not None and after is None
            if not fine:
                self.wrong.append(delta)
            if after is None:
                self.state.pop(delta.key, None)
            else:
                self.state[delta.key] = after


def _version(document: Document | None) -> str | None:
    return None if document is None else document["metadata"]["resourceVersion"]


def truth(twin: Twin) -> dict[Key, str]:
    return {key: document["metadata"]["resourceVersion"] for key, document in twin.objects(CONFIG_MAPS).items()}


WATCH_FAULTS = st.builds(
    Fault,
    type=st.sampled_from([FaultType.STALL, FaultType.CLOSE]),
    plural=st.just("configmaps"),
    probability=st.floats(0.1, 0.7),
    writes=st.integers(0, 4),
)
READ_FAULTS = st.one_of(
    st.builds(
        Fault,
        type=st.just(FaultType.ERROR),
        verbs=st.just(frozenset({"list", "watch"})),
        probability=st.floats(0.1, 0.6),
        status=st.sampled_from([410, 429, 500, 503]),
    ),
    st.builds(
        Fault,
        type=st.just(FaultType.DROP),
        verbs=st.just(frozenset({"list", "watch"})),
        probability=st.floats(0.1, 0.6),
    ),
    st.builds(
        Fault,
        type=st.just(FaultType.STALE),
        verbs=st.just(frozenset({"list"})),
        probability=st.floats(0.1, 0.5),
        writes=st.integers(1, 6),
    ),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["create", "change", "delete", "recreate", "compact", "drop"]), st.integers(0, 5)),
    min_size=5,
    max_size=30,
)


def _step(twin: Twin, client: Client, step: str, name: str) -> None:
    key, document = Key("d", name), {"metadata": {"name": name, "namespace": "d"}, "data": {}}
    present = key in twin.objects(CONFIG_MAPS)
    if step == "compact":
        twin.compact()
    elif step == "drop":
        twin.drop_watches()
    elif step == "create" and not present:
        client.create(CONFIG_MAPS, document)
    elif step == "change" and present:
        client.patch(CONFIG_MAPS, key, merge_patch({"data": {"revision": str(twin.revision)}}))
    elif step in ("delete", "recreate") and present:
        client.delete(CONFIG_MAPS, key)
        if step == "recreate":
            client.create(CONFIG_MAPS, document)


def _converges(twin: Twin, steps: Sequence[tuple[str, int]], seed: int) -> Informer[Document]:
    """Let an informer follow the steps under the twin's faults, then end the faults and compare."""
    follower = Follower()
    with (
        twin.client(PATIENT) as client,
        twin.client(PATIENT) as writer,
        Informer(client, CONFIG_MAPS, settings=brisk(0.15), random=Random(seed)) as informer,
    ):
        informer.subscribe(follower)
        for step, name in steps:
            _step(twin, writer, step, f"m{name}")
            # Long enough for the informer's thread to be anywhere between list and watch.
            time.sleep(0.003)
        twin.faults.clear()
        wait_for(lambda: informer.versions() == truth(twin))
        # The deltas of a subscriber add up to the same state: no change lost, none delivered twice.
        assert not follower.wrong
        assert follower.state == truth(twin)
    return informer


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    faults=st.lists(st.one_of(WATCH_FAULTS, READ_FAULTS), min_size=1, max_size=3),
    steps=STEPS,
    seed=st.integers(0, 9),
)
def test_the_copy_converges_to_the_truth_under_faults(
    faults: list[Fault], steps: list[tuple[str, int]], seed: int
) -> None:
    with Twin(TwinSettings(seed=seed, bookmark_seconds=0.05)) as twin:
        for fault in faults:
            twin.faults.add(fault)
        _converges(twin, steps, seed)


@pytest.mark.parametrize("seed", range(4))
def test_the_copy_converges_in_a_storm_of_faults(seed: int) -> None:
    random = Random(seed)
    kinds = ["create", "change", "change", "delete", "recreate"]
    steps = [(random.choice(kinds), random.randrange(8)) for _ in range(200)]
    for place in random.sample(range(200), 12):
        steps[place] = (random.choice(["compact", "drop"]), 0)
    with Twin(TwinSettings(seed=seed, bookmark_seconds=0.05)) as twin:
        reads = frozenset({"list", "watch"})
        for status in (410, 429, 500):
            twin.faults.add(Fault(FaultType.ERROR, reads, probability=0.12, status=status))
        twin.faults.add(Fault(FaultType.DROP, reads, probability=0.1))
        twin.faults.add(Fault(FaultType.STALE, reads, probability=0.3, writes=4))
        twin.faults.add(Fault(FaultType.STALL, probability=0.3, writes=2))
        twin.faults.add(Fault(FaultType.CLOSE, writes=2))
        informer = _converges(twin, steps, seed)
        # The storm was one: the informer had to begin again and again.
        assert sum(twin.faults.struck.values()) > 5
        assert informer.counters.lists + informer.counters.watches > 5


def test_a_silent_watch_is_noticed_and_resumed_without_a_list(twin: Twin) -> None:
    with twin.client() as client, Informer(client, PODS, settings=brisk()) as informer:
        assert informer.wait_synced(30)
        wait_for(lambda: twin.open_watches == 1)
        twin.stall_watches()
        twin.load(PODS, [pod("a", "d")])
        wait_for(lambda: informer.get(Key("d", "a")) is not None)
        assert informer.counters.lists == 1
        assert informer.counters.watches >= 2


def test_bookmarks_keep_a_quiet_watch_alive(twin: Twin) -> None:
    with twin.client() as client, Informer(client, PODS, settings=brisk(1.5)) as informer:
        assert informer.wait_synced(30)
        time.sleep(3.0)
        assert informer.counters.watches == 1
        assert informer.silent_seconds() < 1.5


def test_what_was_deleted_out_of_sight_is_told(twin: Twin) -> None:
    keys = twin.load(PODS, [pod("a", "d"), pod("b", "d")])
    follower = Follower()
    with twin.client(PATIENT) as client, Informer(client, PODS, settings=brisk()) as informer:
        informer.subscribe(follower)
        assert informer.wait_synced(30)
        wait_for(lambda: twin.open_watches == 1)
        twin.stall_watches()
        client.delete(PODS, keys[0])
        client.delete(PODS, keys[1])
        client.create(PODS, pod("b", "d"))
        twin.compact()
        wait_for(lambda: informer.counters.lists == 2)
        assert set(informer.snapshot()) == {Key("d", "b")}
        # The pod b of before was deleted, another one was added.
        assert follower.deltas == 5
        assert not follower.wrong


def test_a_list_behind_what_was_seen_is_refused(twin: Twin) -> None:
    with twin.client(PATIENT) as client, Informer(client, PODS, settings=brisk()) as informer:
        assert informer.wait_synced(30)
        client.create(PODS, pod("a", "d"))
        wait_for(lambda: informer.get(Key("d", "a")) is not None)
        twin.faults.add(Fault(FaultType.STALE, frozenset({"list"}), writes=1, times=2))
        twin.faults.add(Fault(FaultType.ERROR, frozenset({"watch"}), status=410, times=1))
        twin.drop_watches()
        wait_for(lambda: informer.counters.stale_lists == 2)
        wait_for(lambda: informer.counters.lists == 2)
        assert informer.get(Key("d", "a")) is not None


def test_a_reader_that_cannot_keep_up_is_dropped_and_recovers() -> None:
    with Twin(TwinSettings(bookmark_seconds=0.2, slow_reader_bytes=200_000)) as twin, twin.client() as client:
        blocked, release = threading.Event(), threading.Event()

        def slow(deltas: Sequence[StoreDelta[Document]]) -> None:
            if not blocked.is_set():
                blocked.set()
                release.wait(5)

        with Informer(client, CONFIG_MAPS, settings=brisk(2.0)) as informer:
            informer.subscribe(slow)
            assert informer.wait_synced(30)
            wait_for(lambda: twin.open_watches == 1)
            data = {"blob": "x" * 100_000}
            for number in range(150):
                twin.load(CONFIG_MAPS, [{"metadata": {"name": f"m{number}", "namespace": "d"}, "data": data}])
            wait_for(lambda: twin.open_watches == 0)
            release.set()
            wait_for(lambda: informer.versions() == truth(twin))


def test_a_subscriber_that_fails_does_not_stop_the_copy(twin: Twin) -> None:
    def broken(_: Any) -> None:
        raise RuntimeError("subscriber")

    follower = Follower()
    with twin.client() as client, Informer(client, CONFIG_MAPS) as informer:
        informer.subscribe(broken)
        informer.subscribe(follower)
        assert informer.wait_synced(30)
        twin.load(CONFIG_MAPS, [{"metadata": {"name": "a", "namespace": "d"}}])
        wait_for(lambda: follower.deltas == 1)
        assert informer.counters.subscriber_errors == 1


def test_a_kind_that_is_installed_late_is_found(twin: Twin) -> None:
    profiles = custom(WORKLOAD_PROFILE)
    with twin.client(PATIENT) as client, Informer(client, profiles.of(dict), settings=brisk()) as informer:
        assert informer.wait_synced(30)
        assert (informer.served, informer.snapshot()) == (False, {})
        twin.serve(profiles)
        twin.load(profiles, [{"metadata": {"name": "p", "namespace": "d"}}])
        wait_for(lambda: Key("d", "p") in informer.snapshot())
        assert informer.served


def _lines(caplog: pytest.LogCaptureFixture, plural: str) -> list[tuple[str, str]]:
    about = [each for each in caplog.records if each.name == "cluster.informer" and plural in each.getMessage()]
    return [(each.levelname, each.getMessage()) for each in about if each.levelno > logging.DEBUG]


def test_a_wait_after_failures_ends_when_the_server_is_known_to_answer(twin: Twin) -> None:
    twin.faults.add(Fault(FaultType.ERROR, frozenset({"list"}), status=503))
    patient = InformerSettings(backoff=Backoff(600.0, 600.0))
    with twin.client(IMPATIENT) as client, Informer(client, PODS, settings=patient) as informer:
        wait_for(lambda: informer.counters.failures)
        twin.faults.clear()
        informer.hurry()
        assert informer.wait_synced(30.0)


def test_an_outage_is_logged_when_it_begins_and_when_it_ends(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "cluster.informer")
    with twin.client(IMPATIENT) as client, Informer(client, CONFIG_MAPS, settings=brisk()) as informer:
        assert informer.wait_synced(30)
        twin.faults.add(Fault(FaultType.ERROR, verbs=frozenset({"list", "watch"}), status=503))
        twin.drop_watches()
        wait_for(lambda: informer.counters.failures >= 5)
        assert [level for level, _ in _lines(caplog, "configmaps")] == ["WARNING"]
        twin.faults.clear()
        twin.load(CONFIG_MAPS, [{"metadata": {"name": "a", "namespace": "d"}}])
        wait_for(lambda: len(_lines(caplog, "configmaps")) > 1)
        assert [level for level, _ in _lines(caplog, "configmaps")] == ["WARNING", "INFO"]


def test_a_kind_that_is_not_installed_is_logged_once(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "cluster.informer")
    profiles = custom(WORKLOAD_PROFILE)
    with twin.client(PATIENT) as client, Informer(client, profiles.of(dict), settings=brisk()) as informer:
        wait_for(lambda: informer.counters.failures >= 4)
        plural = profiles.plural
        assert [level for level, _ in _lines(caplog, plural)] == ["INFO"]
        twin.serve(profiles)
        wait_for(lambda: len(_lines(caplog, plural)) == 2)


def test_stopping_does_not_wait_for_the_server(twin: Twin) -> None:
    with twin.client() as client:
        informer = Informer(client, PODS)
        informer.start()
        assert informer.wait_synced(30)
        wait_for(lambda: twin.open_watches == 1)
        started = time.monotonic()
        informer.stop()
        assert time.monotonic() - started < PROMPTLY_SECONDS
        wait_for(lambda: twin.open_watches == 0)


def _bindings(twin: Twin) -> dict[Key, list[str]]:
    """Every node that a pod was ever moved to, in order, from the linear history."""
    moves: dict[Key, list[str]] = {}
    for event in twin.history(PODS):
        before = event.previous.document["spec"].get("nodeName") if event.previous else None
        after = event.record.document["spec"].get("nodeName")
        if event.type != "DELETED" and after != before:
            moves.setdefault(event.record.key, []).append(after)
    return moves


LOST_ANSWERS = [
    Fault(FaultType.DROP, frozenset({"bind", "get"}), probability=0.15),
    Fault(FaultType.DROP, frozenset({"bind"}), probability=0.25, after=True),
    Fault(FaultType.ERROR, frozenset({"bind"}), probability=0.1, status=500, after=True),
    Fault(FaultType.ERROR, frozenset({"bind", "get"}), probability=0.1, status=429),
]


@pytest.mark.parametrize("seed", range(3))
def test_bindings_are_neither_lost_nor_doubled(seed: int) -> None:
    with Twin(TwinSettings(seed=seed)) as twin:
        keys = twin.load(PODS, [pod(f"p{number}", "d") for number in range(40)])
        for fault in LOST_ANSWERS:
            twin.faults.add(fault)

        def place(node: str) -> list[tuple[Key, BindOutcome]]:
            order = Random(f"{node}{seed}").sample(keys, len(keys))
            with twin.client(PATIENT) as client:
                return [(key, bind(client, Binding(key, "", node))) for key in order]

        # Three schedulers, each of which wants every pod on its own node.
        with ThreadPoolExecutor(3) as pool:
            answers = dict(zip("abc", pool.map(place, "abc"), strict=True))
        moves = _bindings(twin)
        assert {key: len(nodes) for key, nodes in moves.items()} == dict.fromkeys(keys, 1)
        for node, outcomes in answers.items():
            for key, outcome in outcomes:
                assert outcome is (BindOutcome.BOUND if moves[key] == [node] else BindOutcome.ELSEWHERE)
        assert twin.faults.struck[FaultType.DROP] > 20


def test_a_binding_is_not_misjudged_by_a_server_that_lags(twin: Twin) -> None:
    (key,) = twin.load(PODS, [pod("a", "d")])
    with twin.client(PATIENT) as client:
        twin.faults.add(Fault(FaultType.DROP, frozenset({"bind"}), after=True, times=1))
        twin.faults.add(Fault(FaultType.STALE, frozenset({"get"}), writes=1, times=2))
        assert bind(client, Binding(key, "", "n")) is BindOutcome.BOUND
        assert twin.faults.struck == {FaultType.DROP: 1, FaultType.STALE: 2}


def test_binding_a_pod_under_deletion_is_gone(twin: Twin) -> None:
    document = pod("a", "d")
    document["metadata"]["finalizers"] = ["koordinator.sh/wait"]
    (key,) = twin.load(PODS, [document])
    with twin.client() as client:
        client.delete(PODS, key)
        assert bind(client, Binding(key, "", "n")) is BindOutcome.GONE


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_create_whose_answer_is_lost_creates_once(twin: Twin, after: bool) -> None:
    twin.faults.add(Fault(FaultType.DROP, frozenset({"create"}), times=2, after=after))
    wanted = {"metadata": {"name": "a", "namespace": "d"}, "data": {"owner": "me"}}
    with twin.client(PATIENT) as client:
        assert client.create(CONFIG_MAPS, wanted)["data"] == {"owner": "me"}
        assert len(twin.history(CONFIG_MAPS)) == 1


def test_somebody_elses_object_is_not_taken_for_ours(twin: Twin) -> None:
    twin.load(CONFIG_MAPS, [{"metadata": {"name": "a", "namespace": "d"}, "data": {"owner": "other"}}])
    twin.faults.add(Fault(FaultType.DROP, frozenset({"create"}), times=1))
    with twin.client(PATIENT) as client, pytest.raises(AlreadyExists):
        client.create(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "d"}, "data": {"owner": "me"}})


def test_a_generated_name_is_not_tried_twice_in_doubt(twin: Twin) -> None:
    twin.faults.add(Fault(FaultType.DROP, frozenset({"create"}), times=1, after=True))
    with twin.client(PATIENT) as client:
        with pytest.raises(Unavailable) as lost:
            client.create(CONFIG_MAPS, {"metadata": {"generateName": "a-", "namespace": "d"}})
        assert lost.value.ambiguous
        assert lost.value.__cause__ is not None
        assert len(twin.objects(CONFIG_MAPS)) == 1


def test_modify_counts_right_although_answers_are_lost(twin: Twin) -> None:
    twin.load(CONFIG_MAPS, [{"metadata": {"name": "a", "namespace": "d"}, "data": {}}])
    twin.faults.add(Fault(FaultType.DROP, frozenset({"update"}), probability=0.3, after=True))
    twin.faults.add(Fault(FaultType.ERROR, frozenset({"update"}), probability=0.3, status=409))

    def enrol(name: str) -> None:
        def change(document: Document) -> Document | None:
            if name in document["data"]:
                return None
            document["data"][name] = "here"
            return document

        with twin.client(PATIENT) as client:
            client.modify(CONFIG_MAPS, Key("d", "a"), change, attempts=60)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(enrol, [f"n{number}" for number in range(12)]))
    assert set(twin.objects(CONFIG_MAPS)[Key("d", "a")]["data"]) == {f"n{number}" for number in range(12)}


@pytest.fixture
def guarded() -> Iterator[Twin]:
    """Eight ready pods under a budget that keeps five."""
    with Twin(TwinSettings(disruption_controller=True, termination_seconds=0.0)) as twin:
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        labels = {"app": "web"}
        twin.load(PODS, [pod(f"p{n}", "d", labels=labels, nodeName="n") | {"status": ready} for n in range(8)])
        spec = {"minAvailable": 5, "selector": {"matchLabels": labels}}
        twin.load(POD_DISRUPTION_BUDGETS, [{"metadata": {"name": "web", "namespace": "d"}, "spec": spec}])
        yield twin


def test_evictions_stop_at_the_budget_under_faults(guarded: Twin) -> None:
    guarded.faults.add(Fault(FaultType.DROP, frozenset({"evict"}), probability=0.3, after=True))
    guarded.faults.add(Fault(FaultType.ERROR, frozenset({"evict"}), probability=0.2, status=429))
    guarded.faults.add(Fault(FaultType.ERROR, frozenset({"evict"}), probability=0.2, status=500))

    def remove(number: int) -> EvictionOutcome:
        with guarded.client(PATIENT) as client:
            return evict(client, Key("d", f"p{number}"), DeleteOptions(grace_period_seconds=0)).outcome

    with ThreadPoolExecutor(4) as pool:
        outcomes = Counter(pool.map(remove, range(8)))
    assert len(guarded.objects(PODS)) == 5
    assert outcomes[EvictionOutcome.BUDGET] == 5
    assert outcomes[EvictionOutcome.EVICTED] + outcomes[EvictionOutcome.GONE] == 3


def test_shed_load_is_waited_out_as_long_as_the_server_asks(twin: Twin) -> None:
    twin.faults.add(Fault(FaultType.ERROR, frozenset({"list"}), status=429, seconds=1.0, times=1))
    with twin.client() as client:
        started = time.monotonic()
        client.list(PODS)
        assert time.monotonic() - started >= 1.0


def test_a_server_that_stays_away_is_an_error_with_its_cause() -> None:
    with Twin() as twin:
        endpoint = twin.endpoint()
    impatient = ClientSettings(attempts=3, backoff=QUICK)
    with Client(endpoint, impatient) as client, pytest.raises(Unavailable) as refused:
        client.list(PODS)
    # Nothing was sent, so nothing is in doubt.
    assert not refused.value.ambiguous
    assert isinstance(refused.value.__cause__, Exception)


def test_an_answer_that_takes_too_long_is_in_doubt(twin: Twin) -> None:
    twin.faults.add(Fault(FaultType.DELAY, frozenset({"patch"}), seconds=0.5))
    twin.load(CONFIG_MAPS, [{"metadata": {"name": "a", "namespace": "d"}}])
    hasty = ClientSettings(timeout_seconds=0.1, attempts=2, backoff=QUICK)
    with twin.client(hasty) as client, pytest.raises(ClusterError):
        client.patch(CONFIG_MAPS, Key("d", "a"), merge_patch({"data": {"x": "1"}}))
    assert twin.objects(CONFIG_MAPS)[Key("d", "a")]["data"] == {"x": "1"}


def test_requests_keep_to_the_rate(twin: Twin) -> None:
    with twin.client(ClientSettings(requests_per_second=50, burst=5)) as client:
        started = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: client.list(PODS, Query("d")), range(20)))
        assert time.monotonic() - started >= 0.29
