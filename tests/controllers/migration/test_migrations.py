"""Migrations against the twin, with a failure injected at every step: no pod goes before its place is there."""

import contextlib
import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from api.kube.times import rfc3339
from api.placement import PlacementAnswer, PlacementRequest, PodPlacement
from cluster import EVENTS, NODES, PODS, REPLICA_SETS, Client, ClusterError, Key, merge_patch
from cluster.events import EventRecorder, RecorderSettings
from cluster.twin import Fault, FaultType, Twin
from controllers.descheduler.kinds import MIGRATION, NODE, POD, RESERVATION, WORKLOADS
from controllers.migration.migrations import LABEL_POLICY, Migrations
from controllers.migration.progress import CREATED_BY, LABEL_CREATED_BY
from controllers.migration.settings import MigrationArgs
from controllers.runtime.writer import UnplacedError
from controllers.runtime.writes import Verb, Write
from tests.descheduling import NOW, a_node, a_pod, a_view, a_workload, pod_document
from tests.managed import running
from tests.waiting import wait_for

REPLICAS = 5
ARGS = MigrationArgs(evict_qps=1000.0, evict_burst=100, max_migrating_per_node=None)
READY = {"type": "Ready", "status": "True"}


class Cluster:
    """A twin with a ReplicaSet of five pods on node a, and what the scheduler and the controllers would do."""

    def __init__(self, twin: Twin, client: Client) -> None:
        self.twin = twin
        self.client = client
        self.numbers = itertools.count(REPLICAS)
        self.reserve = True
        self.owners = True
        """State the owners of a reservation that is used."""
        resources = {"cpu": "10", "memory": "100G", "pods": "110"}
        for name in ("a", "b"):
            status = {"capacity": resources, "allocatable": resources, "conditions": [READY]}
            twin.load(NODES, [{"metadata": {"name": name}, "status": status}])
        workload = {
            "metadata": {"name": "web", "namespace": "shop", "uid": "uid-web", "generation": 1},
            "spec": {"replicas": REPLICAS},
            "status": {"replicas": REPLICAS, "observedGeneration": 1},
        }
        twin.load(REPLICA_SETS, [workload])
        uid = twin.objects(REPLICA_SETS)[Key("shop", "web")]["metadata"]["uid"]
        self.owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": True}
        twin.load(PODS, [self.pod(f"w{number}", "a") for number in range(REPLICAS)])

    def pod(self, name: str, node: str) -> dict[str, Any]:
        document = pod_document(name, node)
        document["metadata"] |= {"ownerReferences": [self.owner], "creationTimestamp": rfc3339(time.time())}
        document["metadata"].pop("uid")
        document["metadata"].pop("resourceVersion")
        document["spec"]["terminationGracePeriodSeconds"] = 0
        return document

    def ask(self, name: str = "w0", mode: str = "ReservationFirst", **more: Any) -> None:
        uid = self.twin.objects(PODS)[Key("shop", name)]["metadata"]["uid"]
        spec = {"podRef": {"namespace": "shop", "name": name, "uid": uid}, "mode": mode, "ttl": "5m"}
        self.twin.load(MIGRATION, [{"metadata": {"name": "job", **more}, "spec": spec}])

    def job(self) -> dict[str, Any]:
        return self.twin.objects(MIGRATION)[Key("", "job")].get("status") or {}

    def act(self) -> None:
        """Play the scheduler and the ReplicaSet once; what fails is tried again."""
        with contextlib.suppress(ClusterError):
            self._act()

    def _act(self) -> None:
        places = self.twin.objects(RESERVATION)
        for key, place in places.items():
            if self.reserve and not (place.get("status") or {}).get("phase"):
                status = {"phase": "Available", "nodeName": "b"}
                self.client.patch(RESERVATION, key, merge_patch({"status": status}), subresource="status")
        alive = [each for each in self.twin.objects(PODS).values() if not each["metadata"].get("deletionTimestamp")]
        if len(alive) >= REPLICAS:
            return
        free = next((key for key, it in places.items() if (it.get("status") or {}).get("phase") == "Available"), None)
        new = f"w{next(self.numbers)}"
        made = self.pod(new, "b")
        if free is not None:
            text = json.dumps({"name": free.name, "uid": places[free]["metadata"]["uid"]})
            made["metadata"]["annotations"] = {"scheduling.koordinator.sh/reservation-allocated": text}
        self.twin.load(PODS, [made])
        if free is not None and self.owners:
            uid = self.twin.objects(PODS)[Key("shop", new)]["metadata"]["uid"]
            owner = {"namespace": "shop", "name": new, "uid": uid}
            status = {"phase": "Succeeded", "currentOwners": [owner]}
            self.client.patch(RESERVATION, free, merge_patch({"status": status}), subresource="status")
        elif free is not None:
            self.client.patch(RESERVATION, free, merge_patch({"status": {"phase": "Succeeded"}}), subresource="status")

    def reaches(self, phase: str) -> dict[str, Any]:
        def there() -> bool:
            self.act()
            return self.job().get("phase") == phase

        wait_for(there, 30.0, interval_seconds=0.02, check=lambda: str(self.job()))
        return self.job()

    def check_that_no_pod_was_lost(self) -> None:
        """Hold the history against the promise: a pod goes only while an unused place is there for its successor."""
        merged = [*self.twin.history(PODS), *self.twin.history(RESERVATION)]
        free = 0
        known: dict[Key, str] = {}
        for write in sorted(merged, key=lambda each: each.record.revision):
            document, key = write.record.document, write.record.key
            if document.get("kind") == "Reservation" or not key.namespace:
                known[key] = "" if write.type == "DELETED" else (document.get("status") or {}).get("phase", "")
                free = sum(1 for phase in known.values() if phase == "Available")
            elif document["metadata"].get("deletionTimestamp") and write.type != "DELETED":
                assert free, f"{key} was evicted without a place"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Twin() as twin, twin.client() as client:
        twin.serve(MIGRATION)
        twin.serve(RESERVATION)
        yield Cluster(twin, client)


def place(request: PlacementRequest) -> PlacementAnswer:
    return PlacementAnswer([PodPlacement(each.uid, node="b") for each in request.pods], 2, 0.0)


def test_a_pod_moves_with_every_step_in_status_and_events(cluster: Cluster) -> None:
    cluster.ask()
    with cluster.twin.client() as client:
        recorder = EventRecorder(client, RecorderSettings("koord-descheduler", "me"))
        recorder.start()
        with running(cluster.twin, {"migration": Migrations(ARGS, "me")}, recorder=recorder):
            done = cluster.reaches("Succeeded")
        recorder.stop()
    assert done["status"] == "Complete"
    assert done["nodeName"] == "b"
    assert done["podRef"]["name"] == f"w{REPLICAS}"
    kinds = {each["type"]: each["status"] for each in done["conditions"]}
    wanted = ("ReservationCreated", "ReservationScheduled", "Eviction", "PodBoundReservation", "BoundPodReady")
    assert kinds == {**dict.fromkeys(wanted, "True"), "PodScheduled": "True"}
    reasons = {each["reason"] for each in cluster.twin.objects(EVENTS).values()}
    assert {"ReservationCreated", "ReservationScheduled", "Evicting", "Descheduled", "Complete"} <= reasons
    cluster.check_that_no_pod_was_lost()


def test_a_place_that_has_lost_its_owners_is_known_by_the_annotation_of_the_new_pod(cluster: Cluster) -> None:
    cluster.ask()
    cluster.owners = False
    with running(cluster.twin, {"migration": Migrations(ARGS, "me")}):
        assert cluster.reaches("Succeeded")["podRef"]["name"] == f"w{REPLICAS}"


STEPS = {
    "make-reservation": ("create", "reservations"),
    "note-a-step": ("patch", "podmigrationjobs"),
    "evict": ("evict", "pods"),
}
WAYS = {
    "error": {"type": FaultType.ERROR},
    "unavailable": {"type": FaultType.ERROR, "status": 503},
    "conflict": {"type": FaultType.ERROR, "status": 409},
    "lost-request": {"type": FaultType.DROP},
    "lost-answer": {"type": FaultType.DROP, "after": True},
}


@pytest.mark.parametrize("way", sorted(WAYS), ids=str)
@pytest.mark.parametrize("at", sorted(STEPS), ids=str)
def test_a_failure_at_a_step_delays_the_move_and_loses_nothing(cluster: Cluster, at: str, way: str) -> None:
    verb, plural = STEPS[at]
    cluster.ask()
    cluster.twin.faults.add(Fault(verbs=frozenset({verb}), plural=plural, times=2, **WAYS[way]))  # type: ignore[arg-type]
    with running(cluster.twin, {"migration": Migrations(ARGS, "me")}):
        cluster.reaches("Succeeded")
    assert cluster.twin.faults.struck
    cluster.check_that_no_pod_was_lost()
    alive = cluster.twin.objects(PODS)
    assert len(alive) == REPLICAS
    assert len(cluster.twin.objects(RESERVATION)) == 1, "one place was made, whatever answer was lost"


@pytest.mark.parametrize("written", range(1, 6), ids=str)
def test_a_process_that_dies_after_any_write_is_followed_by_one_that_goes_on(cluster: Cluster, written: int) -> None:
    cluster.ask()

    def steps() -> int:
        return len(cluster.twin.history(MIGRATION)) + len(cluster.twin.history(RESERVATION))

    before = steps()
    with running(cluster.twin, {"migration": Migrations(ARGS, "me")}):

        def far_enough() -> bool:
            cluster.act()
            return steps() >= before + written

        wait_for(far_enough, 30.0)
    with running(cluster.twin, {"migration": Migrations(ARGS, "me")}):
        cluster.reaches("Succeeded")
    cluster.check_that_no_pod_was_lost()
    assert len(cluster.twin.objects(PODS)) == REPLICAS


@pytest.mark.parametrize("owners", [True, False], ids=["owner-stated", "owners-lost"])
def test_the_new_pod_seen_before_the_end_of_the_old_one_did_not_take_its_place(cluster: Cluster, owners: bool) -> None:
    cluster.ask()
    cluster.owners = owners
    cluster.twin.faults.add(Fault(FaultType.STALL, frozenset({"watch"}), "pods"))
    with running(cluster.twin, {"migration": Migrations(ARGS, "me")}):
        wait_for(lambda: (cluster.act(), Key("shop", f"w{REPLICAS}") in cluster.twin.objects(PODS))[1])
        with pytest.raises(AssertionError):  # it knows the old pod alone, and the place as used
            wait_for(lambda: cluster.job().get("phase") == "Failed", 1.0)
        assert cluster.twin.objects(RESERVATION), "the place of the new pod stays"
    cluster.twin.faults.clear()
    with running(cluster.twin, {"migration": Migrations(ARGS, "me")}):
        assert cluster.reaches("Succeeded")["podRef"]["name"] == f"w{REPLICAS}"


def test_a_place_that_another_pod_took_before_the_eviction_ends_the_move(cluster: Cluster) -> None:
    cluster.ask()
    cluster.twin.faults.add(Fault(FaultType.ERROR, frozenset({"evict"}), "pods", status=429))
    with running(cluster.twin, {"migration": Migrations(ARGS, "me")}):
        wait_for(lambda: (cluster.act(), cluster.job().get("status") == "Evicting")[1])
        (key,) = cluster.twin.objects(RESERVATION)
        owner = {"namespace": "shop", "name": "thief", "uid": "uid-thief"}
        taken = merge_patch({"status": {"phase": "Succeeded", "currentOwners": [owner]}})
        cluster.client.patch(RESERVATION, key, taken, subresource="status")
        assert cluster.reaches("Failed")["message"] == "another pod took the place"
    assert Key("shop", "w0") in cluster.twin.objects(PODS)


def test_a_reservation_that_the_server_refuses_ends_the_job(cluster: Cluster) -> None:
    cluster.ask()
    cluster.twin.faults.add(Fault(FaultType.ERROR, frozenset({"create"}), "reservations", status=403))
    with running(cluster.twin, {"migration": Migrations(ARGS, "me")}):
        assert cluster.reaches("Failed")["reason"] == "FailedCreateReservation"
    assert Key("shop", "w0") in cluster.twin.objects(PODS)


def test_a_place_that_is_never_found_costs_no_pod_and_is_freed(cluster: Cluster) -> None:
    cluster.ask()
    cluster.reserve = False
    with running(cluster.twin, {"migration": Migrations(ARGS, "me")}):
        wait_for(lambda: cluster.twin.objects(RESERVATION))
        (key,) = cluster.twin.objects(RESERVATION)
        condition = {"type": "Scheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
        body = merge_patch({"status": {"conditions": [condition]}})
        cluster.client.patch(RESERVATION, key, body, subresource="status")
        found = cluster.reaches("Failed")
        wait_for(lambda: not cluster.twin.objects(RESERVATION))
    assert (found["reason"], found["message"]) == ("Unschedulable", "0/2 nodes")
    assert Key("shop", "w0") in cluster.twin.objects(PODS)


def test_a_direct_eviction_needs_the_schedulers_answer(cluster: Cluster) -> None:
    cluster.ask(mode="EvictDirectly")
    answers: list[Any] = [UnplacedError("away"), PlacementAnswer([PodPlacement("", message="full")], 2, 0.0)]
    asked: list[PlacementRequest] = []

    def ask(request: PlacementRequest) -> PlacementAnswer:
        asked.append(request)
        assert Key("shop", "w0") in cluster.twin.objects(PODS)
        answer = answers.pop(0) if answers else place(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with running(cluster.twin, {"migration": Migrations(ARGS, "me")}, ask=ask):
        cluster.reaches("Succeeded")
    assert len(asked) == 3
    with pytest.raises(AssertionError, match="without a place"):
        cluster.check_that_no_pod_was_lost()  # nothing was reserved, and the check says so
    assert asked[0].pods[-1].excluded_nodes == ["a"]


def test_a_workload_that_is_released_after_the_place_was_found_keeps_its_pod(cluster: Cluster) -> None:
    cluster.reserve = False
    cluster.ask()
    with running(cluster.twin, {"migration": Migrations(ARGS, "me")}, ask=place):
        wait_for(lambda: cluster.job().get("status") == "ReservationCreated")
        web = Key("shop", "web")
        released = merge_patch({"metadata": {"generation": 2}, "spec": {"replicas": REPLICAS + 1}})
        cluster.client.patch(REPLICA_SETS, web, released)
        cluster.reserve = True
        wait_for(lambda: (cluster.act(), "web" in cluster.job().get("message", ""))[1])
        assert Key("shop", "w0") in cluster.twin.objects(PODS)
        status = {"status": {"replicas": REPLICAS + 1, "observedGeneration": 9}}
        cluster.client.patch(REPLICA_SETS, web, merge_patch(status), subresource="status")
        assert "message" not in cluster.reaches("Succeeded")
    cluster.check_that_no_pod_was_lost()


@pytest.mark.parametrize(("policy", "verb"), [("Eviction", Verb.EVICT), ("Delete", Verb.DELETE)])
def test_a_label_alone_does_not_choose_what_passes_disruption_budgets_by(policy: Any, verb: Verb) -> None:
    old = a_pod("old", labels={LABEL_POLICY: "Delete"})
    job = msgspec.convert(
        {
            "metadata": {"name": "job", "creationTimestamp": rfc3339(NOW), "resourceVersion": "1"},
            "spec": {"podRef": {"namespace": "shop", "name": "old"}, "mode": "EvictDirectly", "ttl": "5m"},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Eviction", "status": "False", "reason": "Evicting"}],
            },
        },
        MIGRATION.model,
    )
    objects = {NODE: [a_node("a")], POD: [old], WORKLOADS[0]: [a_workload()], MIGRATION: [job]}
    writes = Migrations(MigrationArgs(eviction_policy=policy), "me").plan(a_view(objects), NOW).writes
    assert [each.verb for each in writes] == [verb]
    assert writes[0].instead is None or writes[0].instead.verb is Verb.EVICT


def test_a_place_that_was_lost_after_the_eviction_was_asked_for_goes_once_the_failure_is_stored() -> None:
    kinds = ("ReservationCreated", "ReservationScheduled", "Eviction")
    conditions = [
        {"type": kind, "status": "True", "reason": "Evicting" if kind == "Eviction" else ""} for kind in kinds
    ]
    job: dict[str, Any] = {
        "metadata": {"name": "job", "uid": "uid-job", "creationTimestamp": rfc3339(NOW), "resourceVersion": "1"},
        "spec": {"podRef": {"namespace": "shop", "name": "old", "uid": "uid-old"}, "ttl": "5m"},
        "status": {"phase": "Running", "conditions": conditions},
    }
    made = {LABEL_CREATED_BY: CREATED_BY}
    reservation = {
        "metadata": {"name": "uid-job", "uid": "uid-place", "labels": made, "resourceVersion": "1"},
        "spec": {"owners": [{"object": {"name": "x"}}]},
        "status": {"phase": "Available", "nodeName": "b"},
    }

    def planned() -> list[Write]:
        objects = {
            NODE: [a_node("a"), a_node("b", ready="False")],
            POD: [a_pod("old")],
            WORKLOADS[0]: [a_workload()],
            RESERVATION: [msgspec.convert(reservation, RESERVATION.model)],
            MIGRATION: [msgspec.convert(job, MIGRATION.model)],
        }
        return list(Migrations(ARGS, "me").plan(a_view(objects), NOW).writes)

    (failure,) = planned()
    assert failure.standing is not None
    assert failure.body["status"]["phase"] == "Failed"
    job["status"] = failure.body["status"]
    (freed,) = planned()
    assert (freed.verb, freed.resource, freed.standing) == (Verb.DELETE, RESERVATION, None)


def test_without_a_scheduler_nothing_is_evicted_directly(cluster: Cluster) -> None:
    cluster.ask(mode="EvictDirectly")
    with running(cluster.twin, {"migration": Migrations(ARGS, "me")}):
        wait_for(lambda: cluster.job().get("status") == "Evicting")
        with pytest.raises(AssertionError):
            wait_for(lambda: Key("shop", "w0") not in cluster.twin.objects(PODS), 0.5)


def test_pause_and_approval_hold_a_job(cluster: Cluster) -> None:
    cluster.ask(annotations={"descheduler.koordinator.sh/approval": "required"})
    with running(cluster.twin, {"migration": Migrations(ARGS, "me")}):
        wait_for(lambda: cluster.job().get("status") == "WaitForApproval")
        approved = merge_patch({"metadata": {"annotations": {"descheduler.koordinator.sh/approved": "true"}}})
        cluster.client.patch(MIGRATION, Key("", "job"), approved)
        cluster.reaches("Succeeded")


def test_a_job_of_another_instance_is_left_alone(cluster: Cluster) -> None:
    cluster.ask(annotations={"descheduler.koordinator.sh/job-created-by": "another"})
    with running(cluster.twin, {"migration": Migrations(ARGS, "me")}), pytest.raises(AssertionError):
        wait_for(lambda: cluster.job().get("phase"), 0.3)
