"""Steps of a migration: each situation of Koordinator's table with its phase, reason and condition."""

from typing import Any

import msgspec
import pytest

from api.crds.placement import PodMigrationJob, Reservation
from api.kube.times import rfc3339
from controllers.migration.progress import Action, Facts, Step, condition, pending, running, waits_for_approval
from controllers.migration.reservations import NODE_NAMES, reservation_of
from tests.descheduling import NOW, a_node, a_pod, pod_document

OLD, NODE = a_pod("old", "a"), a_node("b")


def a_job(*conditions: str, mode: str = "ReservationFirst", age: float = 10.0, **more: Any) -> PodMigrationJob:
    """Return a running job; conditions as `Type=Reason`, true unless the reason is a waiting one."""
    listed = []
    for each in conditions:
        kind, _, reason = each.partition("=")
        true = reason != "Evicting" and not reason.startswith("WaitFor")
        listed.append({"type": kind, "status": "True" if true else "False", "reason": reason})
    document = {
        "metadata": {
            "name": "job",
            "uid": "uid-job",
            "creationTimestamp": rfc3339(NOW - age),
            **more.pop("metadata", {}),
        },
        "spec": {"podRef": {"namespace": "shop", "name": "old", "uid": "uid-old"}, "mode": mode, "ttl": "5m", **more},
        "status": {"phase": "Running", "conditions": listed},
    }
    return msgspec.convert(document, PodMigrationJob)


def place(phase: str = "Available", node: str = "b", owner: str = "", **scheduled: str) -> Reservation:
    document = {
        "metadata": {"name": "uid-job", "uid": "r"},
        "spec": {"owners": [{"object": {"name": "x"}}]},
        "status": {
            "phase": phase,
            "nodeName": node,
            "currentOwners": [{"namespace": "shop", "name": owner, "uid": f"uid-{owner}"}] if owner else [],
            "conditions": [{"type": "Scheduled", **scheduled}] if scheduled else [],
        },
    }
    return msgspec.convert(document, Reservation)


MADE = ("ReservationCreated",)
PLACED = (*MADE, "ReservationScheduled")
ASKED = (*PLACED, "Eviction=Evicting")
GONE = (*PLACED, "Eviction=EvictComplete")


def after(job: PodMigrationJob, found: Step) -> PodMigrationJob:
    return msgspec.structs.replace(job, status=found.status)


def step(job: PodMigrationJob, facts: Facts) -> Step:
    found = running(job, facts, NOW)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("job", "facts", "reason", "freed"),
    [
        pytest.param(a_job(age=300), Facts(OLD), "Timeout", True, id="timeout"),
        pytest.param(a_job(*GONE, age=300), Facts(None, place(), NODE), "Timeout", False, id="late-for-the-new-pod"),
        pytest.param(a_job(), Facts(None), "MissingPod", True, id="pod-went"),
        pytest.param(a_job(), Facts(OLD, forbidden="no"), "ForbiddenMigratePod", True, id="forbidden"),
        pytest.param(a_job(*MADE), Facts(OLD), "MissingReservation", True, id="reservation-went"),
        pytest.param(a_job(*MADE), Facts(OLD, place("Failed")), "ReservationExpired", True, id="expired"),
        pytest.param(
            a_job(*MADE),
            Facts(OLD, place("Pending", status="False", reason="Unschedulable", message="0/2 nodes")),
            "Unschedulable",
            True,
            id="unschedulable",
        ),
        pytest.param(a_job(*MADE), Facts(OLD, place(node="a")), "ForbiddenMigratePod", True, id="own-node"),
        pytest.param(
            a_job(*PLACED), Facts(OLD, place(owner="other"), NODE), "ForbiddenMigratePod", True, id="place-taken"
        ),
        pytest.param(a_job(*PLACED), Facts(OLD, place(), None), "ForbiddenMigratePod", True, id="node-went"),
        pytest.param(
            a_job(*PLACED), Facts(OLD, place(), a_node("b", ready="False")), "ForbiddenMigratePod", True, id="not-ready"
        ),
        pytest.param(a_job(*PLACED), Facts(OLD, None, NODE), "MissingReservation", True, id="went-before-eviction"),
        pytest.param(a_job(*ASKED), Facts(OLD, None, NODE), "MissingReservation", True, id="went-while-refused"),
        pytest.param(a_job(*GONE), Facts(None, None, NODE), "MissingReservation", False, id="went-after-eviction"),
    ],
)
def test_ends_without_a_move(job: PodMigrationJob, facts: Facts, reason: str, freed: bool) -> None:
    found = step(job, facts)
    assert (found.status.phase, found.status.reason) == ("Failed", reason)
    assert (found.action is Action.FREE) is freed


@pytest.mark.parametrize(
    ("job", "facts", "action", "expected"),
    [
        pytest.param(a_job(), Facts(OLD), Action.RESERVE, "", id="reserve"),
        pytest.param(a_job(), Facts(OLD, place("Pending")), "", "ReservationCreated", id="made"),
        pytest.param(a_job(*MADE), Facts(OLD, place(), NODE), "", "ReservationScheduled", id="placed"),
        pytest.param(a_job(*PLACED), Facts(OLD, place(), NODE), "", "Evicting", id="wish-to-evict"),
        pytest.param(a_job(*ASKED), Facts(OLD, place(), NODE), Action.EVICT, "", id="evict"),
        pytest.param(a_job(*ASKED), Facts(None, place(), NODE), "", "EvictComplete", id="evicted"),
        pytest.param(a_job(*GONE), Facts(None, place(), NODE), "", "WaitForPodBindReservation", id="wait"),
        pytest.param(
            a_job(*GONE),
            Facts(None, place("Succeeded"), NODE, a_pod("new", "b", ready=False)),
            "",
            "WaitForBoundPodReady",
            id="bound",
        ),
        pytest.param(
            a_job(*GONE), Facts(None, place("Succeeded"), NODE, a_pod("new", "b")), "", "Complete", id="ready"
        ),
        pytest.param(a_job(mode="EvictDirectly"), Facts(OLD), "", "Evicting", id="direct-wish"),
        pytest.param(a_job("Eviction=Evicting", mode="EvictDirectly"), Facts(OLD), Action.EVICT, "", id="direct-evict"),
        pytest.param(a_job("Eviction=Evicting", mode="EvictDirectly"), Facts(None), "", "Complete", id="direct-done"),
    ],
)
def test_steps(job: PodMigrationJob, facts: Facts, action: str, expected: str) -> None:
    found = step(job, facts)
    assert found.action == action
    assert found.status.phase == ("Succeeded" if expected == "Complete" else "Running")
    assert found.status.status == expected


@pytest.mark.parametrize(
    ("job", "facts"),
    [
        pytest.param(a_job(*MADE), Facts(OLD, place("Pending")), id="being-placed"),
        pytest.param(
            a_job(*ASKED),
            Facts(a_pod("old", "a", deletionTimestamp="2027-01-15T08:00:00Z"), place(), NODE),
            id="terminating",
        ),
    ],
)
def test_waits(job: PodMigrationJob, facts: Facts) -> None:
    assert running(job, facts, NOW) is None


@pytest.mark.parametrize(
    ("job", "place_of"),
    [
        pytest.param(a_job(*PLACED), place(), id="before-the-wish"),
        pytest.param(a_job(*ASKED), place(), id="before-the-request"),
        pytest.param(a_job(mode="EvictDirectly"), None, id="direct"),
        pytest.param(a_job("Eviction=Evicting", mode="EvictDirectly"), None, id="direct-request"),
    ],
)
def test_a_workload_that_is_released_meanwhile_loses_no_pod(job: PodMigrationJob, place_of: Reservation | None) -> None:
    facts = Facts(OLD, place_of, NODE, unrest="it scales")
    found = step(job, facts)
    assert found.action is Action.NOTHING
    assert (found.status.phase, found.status.message) == ("Running", "it scales")
    assert condition(after(job, found), "Eviction") == condition(job, "Eviction")
    assert running(after(job, found), facts, NOW) is None, "told once"
    at_rest = step(after(job, found), Facts(OLD, place_of, NODE))
    assert at_rest.action is Action.EVICT or at_rest.status.status == "Evicting"


def test_a_pod_without_a_node_takes_the_place_itself_and_is_never_evicted() -> None:
    found = running(a_job(*PLACED), Facts(a_pod("old", ""), place(), NODE), NOW)
    assert found is not None
    assert found.action is Action.NOTHING
    assert found.status.status == "WaitForPodBindReservation"


def test_the_new_pod_stands_in_the_status() -> None:
    found = step(a_job(*GONE), Facts(None, place("Succeeded"), NODE, a_pod("new", "b")))
    assert found.status.pod_ref is not None
    assert (found.status.pod_ref.name, found.status.node_name) == ("new", "b")
    kinds = {each.type: each.status for each in found.status.conditions}
    assert kinds["PodBoundReservation"] == kinds["BoundPodReady"] == kinds["Eviction"] == "True"


def test_jobs_that_cannot_start_end() -> None:
    assert pending(a_job(), Facts(OLD), NOW) is None
    for job, facts, reason in (
        (a_job(age=301), Facts(OLD), "Timeout"),
        (a_job(podRef={"name": "", "namespace": ""}), Facts(None), "InvalidPodRef"),
        (a_job(), Facts(None), "MissingPod"),
    ):
        found = pending(job, facts, NOW)
        assert found is not None
        assert found.status.reason == reason


def test_a_job_waits_for_the_approval_that_it_needs() -> None:
    required = {"descheduler.koordinator.sh/approval": "required"}
    assert waits_for_approval(a_job(metadata={"annotations": required}))
    approved = {**required, "descheduler.koordinator.sh/approved": "true"}
    assert not waits_for_approval(a_job(metadata={"annotations": approved}))
    assert not waits_for_approval(a_job())


def test_a_condition_keeps_its_time_while_it_stays() -> None:
    first = step(a_job(), Facts(OLD, place("Pending"))).status
    job = msgspec.structs.replace(a_job(), status=first)
    assert condition(job, "ReservationCreated") == first.conditions[0]


def test_the_reservation_is_for_the_next_pod_of_the_controller_elsewhere() -> None:
    decided = {"scheduling.koordinator.sh/resource-status": "{}", "mine": "1"}
    term = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    affinity = {"nodeAffinity": {NODE_NAMES: {"nodeSelectorTerms": [term]}}}
    labels = {"app": "x", "pod-group.scheduling.sigs.k8s.io/name": "g"}
    document = pod_document("old", "a", spec={"affinity": affinity}, annotations=decided, labels=labels)
    made = reservation_of(a_job(), document, NOW)
    assert made.metadata.name == "uid-job"
    assert made.spec.ttl == "390s", "the job's, the pod's grace, and a minute for its successor"
    assert made.spec.owners[0].controller is not None
    assert made.spec.owners[0].controller.uid == "uid-web"
    assert made.spec.template is not None
    assert made.spec.template["metadata"]["annotations"] == {"mine": "1"}
    assert made.spec.template["metadata"]["labels"] == {"app": "x"}
    assert "nodeName" not in made.spec.template["spec"]
    (found,) = made.spec.template["spec"]["affinity"]["nodeAffinity"][NODE_NAMES]["nodeSelectorTerms"]
    assert found["matchExpressions"] == term["matchExpressions"]
    assert found["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": ["a"]}]


def test_the_reservation_of_a_pending_pod_is_its_own() -> None:
    made = reservation_of(a_job(), pod_document("old", ""), NOW)
    assert made.spec.owners[0].object is not None
    assert made.spec.owners[0].object.uid == "uid-old"
