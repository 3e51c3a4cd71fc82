"""The matching rules, one row per rule and exception."""

import json
from dataclasses import replace

import pytest

from api.kube.meta import LabelSelector, ObjectMeta, OwnerReference
from api.kube.objects import Pod, Taint
from scheduler.reservation.matching import AffinityError, refusal, seeker_of
from scheduler.reservation.value import ControllerMatch, ObjectMatch, Owner, Reservation

AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
EXACT = "scheduling.koordinator.sh/exact-match-reservation"
ANY = Owner()
KEPT = Reservation("r", owners=(ANY,), allocatable={"cpu": 4000}, labels={"tier": "gold"})
NO_SCHEDULE = Taint(key="k", value="v", effect="NoSchedule")


def pod(annotations: dict[str, object] | None = None, labels: dict[str, str] | None = None) -> Pod:
    meta = ObjectMeta(
        name="p-1",
        namespace="ns",
        uid="u-1",
        labels={"app": "web", **(labels or {})},
        annotations={key: json.dumps(value) for key, value in (annotations or {}).items()},
        owner_references=[OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="rs-1")],
    )
    return Pod(metadata=meta)


def why(reservation: Reservation, looking: Pod, **node_labels: str) -> str | None:
    return refusal(seeker_of(looking, {"cpu": 2000}), reservation, node_labels)


@pytest.mark.parametrize(
    ("owners", "matches"),
    [
        pytest.param((), False, id="no owner matches nothing"),
        pytest.param((ANY,), True, id="an empty owner matches everything"),
        pytest.param((Owner(object=ObjectMatch(name="p-1", namespace="ns")),), True, id="object"),
        pytest.param((Owner(object=ObjectMatch(uid="u-2")),), False, id="another uid"),
        pytest.param((Owner(controller=ControllerMatch(name="web", kind="ReplicaSet")),), True, id="controller"),
        pytest.param((Owner(controller=ControllerMatch(name="web", namespace="x")),), False, id="its namespace"),
        pytest.param((Owner(selector=LabelSelector(match_labels={"app": "web"})),), True, id="labels"),
        pytest.param(
            (Owner(ObjectMatch(name="p-1"), selector=LabelSelector(match_labels={"app": "db"})),),
            False,
            id="parts of one owner are ANDed",
        ),
        pytest.param((Owner(ObjectMatch(name="x")), Owner(ObjectMatch(name="p-1"))), True, id="owners are ORed"),
    ],
)
def test_owners(owners: tuple[Owner, ...], matches: bool) -> None:
    assert (why(replace(KEPT, owners=owners), pod()) is None) is matches


TOLERATES = {"tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}]}
CORDON = {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}


def terms(key: str, value: str) -> dict[str, object]:
    requirement = {"key": key, "operator": "In", "values": [value]}
    term = {"reservationSelectorTerms": [{"matchExpressions": [requirement]}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": term}


@pytest.mark.parametrize(
    ("changes", "affinity", "expected"),
    [
        pytest.param({"unschedulable": True}, {}, "unschedulable", id="cordoned"),
        pytest.param({"unschedulable": True}, CORDON, None, id="cordon tolerated"),
        pytest.param({"taints": (NO_SCHEDULE,)}, {}, "k=v:NoSchedule", id="tainted"),
        pytest.param({"taints": (NO_SCHEDULE,)}, TOLERATES, None, id="taint tolerated"),
        pytest.param({"taints": (Taint(key="k", effect="PreferNoSchedule"),)}, {}, None, id="soft taint"),
        pytest.param({}, {"reservationSelector": {"tier": "gold"}}, None, id="selector"),
        pytest.param({}, {"reservationSelector": {"tier": "tin"}}, "reservation selector", id="other selector"),
        pytest.param({}, terms("tier", "gold"), None, id="term"),
        pytest.param({}, terms("zone", "z1"), None, id="term over the node's labels"),
        pytest.param({}, terms("tier", "tin"), "reservation affinity", id="other term"),
        pytest.param({"unschedulable": True, "taints": (NO_SCHEDULE,)}, {"name": "r"}, None, id="name skips these"),
        pytest.param({}, {"name": "other"}, "wants reservation other", id="another name"),
    ],
)
def test_affinity(changes: dict[str, object], affinity: dict[str, object], expected: str | None) -> None:
    reason = why(replace(KEPT, **changes), pod({AFFINITY: affinity}), zone="z1")  # type: ignore[arg-type]
    assert (reason is None) == (expected is None)
    assert expected is None or expected in str(reason)


@pytest.mark.parametrize(
    ("names", "kept", "matches"),
    [
        pytest.param(["cpu"], {"cpu": 2000}, True, id="equal"),
        pytest.param(["cpu"], {"cpu": 4000}, False, id="less"),
        pytest.param(["gpu"], {"cpu": 4000}, True, id="other-resource"),
        pytest.param(["cpu"], {}, False, id="not-kept"),
    ],
)
@pytest.mark.parametrize("affinity", [pytest.param({}, id="no-name"), pytest.param({"name": "r"}, id="name")])
def test_exact_match(names: list[str], kept: dict[str, int], matches: bool, affinity: dict[str, object]) -> None:
    looking = pod({EXACT: {"resourceNames": names}, AFFINITY: affinity})
    assert (why(replace(KEPT, allocatable=kept), looking) is None) is matches


def test_a_pod_that_ignores_reservations_may_use_the_room_of_any() -> None:
    looking = pod(labels={"scheduling.koordinator.sh/reservation-ignored": "true"})
    assert why(KEPT, looking) is None


def test_a_malformed_annotation_is_named() -> None:
    with pytest.raises(AffinityError, match=r"pod ns/p-1: reservation annotation .* is malformed"):
        seeker_of(pod({AFFINITY: ["a list"]}), {})
