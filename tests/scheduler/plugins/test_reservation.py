"""Reservation in an engine: room is kept, given to owners, ended in time; every state is written."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.crds import NODE_METRIC, NodeMetric
from api.crds import Reservation as ReservationObject
from api.kube.times import rfc3339
from cluster.resources import Key, custom
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent, Verb
from scheduler.plugins.interpodaffinity import InterPodAffinity
from scheduler.plugins.loadaware import LoadAware
from scheduler.plugins.nodeports import NodePorts
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.podtopologyspread import PodTopologySpread
from scheduler.plugins.reservation import ReservationPlugin
from scheduler.reservation.ledger import RESERVATIONS
from tests.schedobjects import drain, engine, node, pod

KINDS = {"reservation": ReservationPlugin, "noderesourcesfit": NodeResourcesFit}
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
T0 = 1000.0


def reservation(name: str, cpu: str = "3", **fields: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    spec = {"owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}], "allocatePolicy": "Aligned", "ttl": "1h"}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": rfc3339(T0),
            "labels": fields.pop("labels", {}),
        },
        "status": fields.pop("status", {}),
        "spec": {"template": {"spec": {"containers": [container]}}, **spec, **fields},
    }


def tell(made: Engine, document: dict[str, Any], action: Action = Action.UPDATE, now: float = T0) -> None:
    made.now = now
    after = None if action is Action.DELETE else msgspec.convert(document, ReservationObject)
    made.on_object(ObjectEvent(RESERVATIONS, action, Key("", document["metadata"]["name"]), None, after), now)


def web(name: str, cpu: str = "3", **fields: Any) -> Any:
    return pod(name, {"cpu": cpu}, labels={"app": "web"}, **fields)


def wanting(pod_name: str, cpu: str = "3", **affinity: Any) -> Any:
    return web(pod_name, cpu, annotations={AFFINITY: json.dumps(affinity)})


def drawing(name: str, cpu: str, reservation_name: str) -> Any:
    """A bound consumer as the API server shows it."""
    drawn = {"name": reservation_name, "uid": f"uid-{reservation_name}"}
    return web(name, cpu, nodeName="n0", annotations={ALLOCATED: json.dumps(drawn)})


def cluster(nodes: int, *documents: dict[str, Any], placed: tuple[Any, ...] = (), **config: Any) -> Engine:
    made = engine([node(f"n{n}") for n in range(nodes)], placed, kinds=KINDS, plugins={"reservation": config})
    made.tick(T0)
    for document in documents:
        tell(made, document)
    drain(made, T0)
    made.tick(T0)
    return made


def submit(made: Engine, *pods: Any, now: float = T0) -> dict[str, str]:
    for each in pods:
        made.on_pod(Action.ADD, each, now)
    return drain(made, now)


def statuses(made: Engine) -> dict[str, dict[str, Any]]:
    """The status last written, by reservation, from bindings' writes on."""
    found: dict[str, dict[str, Any]] = {}
    for write in made.writes:
        if write.verb is Verb.PATCH_STATUS:
            body: Any = write.body
            found[write.key.name] = body.body["status"]
    return found


def plugin(made: Engine) -> ReservationPlugin:
    found = made.plugins["Reservation"]
    assert isinstance(found, ReservationPlugin)
    return found


def message(made: Engine) -> str:
    return made.outcomes[-1].message


def test_reserved_room_is_kept_from_others_and_given_to_owners() -> None:
    made = cluster(1, reservation("r"))
    assert plugin(made).describe("n0")["r"]["phase"] == "Available"
    assert submit(made, pod("stranger", {"cpu": "2"})) == {}
    assert "Insufficient cpu" in message(made)
    assert submit(made, pod("modest", {"cpu": "1"})) == {"modest": "n0"}
    assert submit(made, web("owner")) == {"owner": "n0"}
    info = made.snapshot.pods["uid-owner"].info
    assert json.loads(info.patch[ALLOCATED]) == {"name": "r", "uid": "uid-r"}
    assert made.snapshot.requested[0, 0] == 4000


def test_binding_a_stand_in_writes_the_status() -> None:
    made = engine([node("n0")], kinds=KINDS)
    tell(made, reservation("r"))
    made.schedule_one(T0)
    [binding] = made.bindings
    body: Any = binding.writes[-1].body
    status = body.body["status"]
    assert (status["phase"], status["nodeName"], status["allocatable"]) == ("Available", "n0", {"cpu": "3"})
    assert [(item["type"], item["status"], item["reason"]) for item in status["conditions"]] == [
        ("Scheduled", "True", "Scheduled"),
        ("Ready", "True", "Available"),
    ]


def test_a_one_time_reservation_succeeds_and_lets_go_of_the_rest() -> None:
    made = cluster(1, reservation("r"))
    submit(made, web("owner", "1"))
    assert submit(made, pod("other", {"cpu": "3"})) == {}
    made.on_pod(Action.UPDATE, drawing("owner", "1", "r"), T0)
    made.writes.clear()
    made.tick(T0 + 1)
    assert statuses(made)["r"]["phase"] == "Succeeded"
    assert [owner["name"] for owner in statuses(made)["r"]["currentOwners"]] == ["owner"]
    assert drain(made, T0 + 20) == {"other": "n0"}


def test_a_shared_reservation_serves_until_it_is_full() -> None:
    made = cluster(1, reservation("r", "4", allocateOnce=False))
    assert submit(made, web("a", "2"), web("b", "1")) == {"a": "n0", "b": "n0"}
    assert plugin(made).describe("n0")["r"]["remaining"] == {"cpu": "1"}
    assert submit(made, web("c", "2")) == {}
    made.on_pod(Action.DELETE, web("a", "2", nodeName="n0"), T0 + 1)
    assert drain(made, T0 + 30) == {"c": "n0"}
    assert made.snapshot.requested[0, 0] == 4000


def test_what_is_reserved_is_found_again_after_a_restart() -> None:
    status = {"phase": "Available", "nodeName": "n0", "allocatable": {"cpu": "3"}}
    made = cluster(1, reservation("r", allocateOnce=False, status=status), placed=(drawing("a", "1", "r"),))
    assert plugin(made).describe("n0")["r"]["remaining"] == {"cpu": "2"}
    assert made.snapshot.requested[0, 0] == 3000
    assert submit(made, pod("stranger", {"cpu": "2"})) == {}
    assert submit(made, web("b", "2")) == {"b": "n0"}


def test_an_affinity_makes_a_reservation_a_must() -> None:
    made = cluster(1)
    assert submit(made, wanting("p", "1", name="r")) == {}
    assert "Reservation(s) needed, none matches: there is none" in message(made)
    tell(made, reservation("r", owners=[{"object": {"name": "x"}}]))
    drain(made, T0 + 20)
    made.on_pod(Action.ADD, wanting("q", "1", name="r"), T0 + 30)
    drain(made, T0 + 30)
    assert "1 the pod is not among its owners" in message(made)
    tell(made, reservation("s", "1"))
    drain(made, T0 + 60)
    assert submit(made, wanting("s-pod", "1", name="s"), now=T0 + 60) == {"s-pod": "n0"}


@pytest.mark.parametrize(
    ("policy", "bound"),
    [pytest.param("Aligned", {"p": "n0"}, id="aligned"), pytest.param("Restricted", {}, id="restricted")],
)
def test_policies_beyond_the_reserved_amount(policy: str, bound: dict[str, str]) -> None:
    made = cluster(1, reservation("r", "2", allocatePolicy=policy))
    assert submit(made, wanting("p", "3", name="r")) == bound


def test_a_pod_uses_one_reservation_only() -> None:
    made = cluster(1, reservation("r", "2"), reservation("s", "2"))
    assert submit(made, web("p", "3")) == {}
    assert "Reservation(s) with too little left" in message(made)
    assert submit(made, web("q", "2")) == {"q": "n0"}


def test_the_default_policy_does_not_mix() -> None:
    made = cluster(1, reservation("r", "1", allocatePolicy=""), reservation("s", "1"))
    assert submit(made, web("p", "1")) == {}
    assert "default policy beside others" in message(made)


def test_the_lowest_order_is_filled_first() -> None:
    first = {"scheduling.koordinator.sh/reservation-order": "1"}
    second = {"scheduling.koordinator.sh/reservation-order": "2"}
    made = cluster(2, reservation("r", "3", labels=second), reservation("s", "4", labels=first))
    submit(made, web("p", "1"))
    assert json.loads(made.snapshot.pods["uid-p"].info.patch[ALLOCATED])["name"] == "s"


def test_owners_by_name_are_told_apart_within_a_workload() -> None:
    made = cluster(1, reservation("r", owners=[{"object": {"name": "chosen"}}]))
    assert submit(made, web("other"), web("chosen")) == {"chosen": "n0"}


def test_owners_by_an_identity_label_are_told_apart_within_a_workload() -> None:
    key = "statefulset.kubernetes.io/pod-name"
    made = cluster(1, reservation("r", owners=[{"labelSelector": {"matchLabels": {key: "db-1"}}}]))
    pods = [pod(name, {"cpu": "3"}, labels={key: name}) for name in ("db-0", "db-1")]
    assert submit(made, *pods) == {"db-1": "n0"}


def test_a_reservation_serves_as_soon_as_it_is_bound() -> None:
    made = cluster(1)
    tell(made, reservation("r", "4"))
    assert submit(made, web("after", "4")) == {"uid-r": "n0", "after": "n0"}


def test_time_ends_a_reservation() -> None:
    made = cluster(1, reservation("r"))
    assert submit(made, pod("p", {"cpu": "4"})) == {}
    made.writes.clear()
    made.tick(T0 + 3600)
    ready = [item for item in statuses(made)["r"]["conditions"] if item["type"] == "Ready"]
    assert statuses(made)["r"]["phase"] == "Failed"
    assert (ready[0]["status"], ready[0]["reason"]) == ("False", "Expired")
    assert drain(made, T0 + 3660) == {"p": "n0"}


def test_a_node_that_goes_ends_its_reservations() -> None:
    made = cluster(1, reservation("r"))
    made.on_node(Action.DELETE, node("n0"), T0 + 1)
    made.writes.clear()
    made.tick(T0 + 2)
    assert statuses(made)["r"]["phase"] == "Failed"


def test_deleting_a_reservation_gives_its_room_back() -> None:
    made = cluster(1, reservation("r"))
    submit(made, pod("p", {"cpu": "4"}))
    tell(made, reservation("r"), Action.DELETE)
    assert drain(made, T0 + 30) == {"p": "n0"}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param({"template": {}}, "spec.template is missing", id="no template"),
        pytest.param({"template": {"spec": {"containers": 7}}}, "spec cannot be read", id="no pod"),
    ],
)
def test_an_invalid_reservation_says_so(changes: dict[str, Any], text: str) -> None:
    made = cluster(1)
    document = reservation("r")
    document["spec"] |= changes
    tell(made, document)
    made.tick(T0 + 1)
    made.tick(T0 + 2)
    assert len(made.writes) == 1
    assert text in statuses(made)["r"]["conditions"][0]["message"]


def test_an_unplaceable_reservation_says_why() -> None:
    made = cluster(1, reservation("r", "9"))
    conditions = statuses(made)["r"]["conditions"]
    assert conditions[0]["message"] == "0/1 nodes are available: 1 Insufficient cpu."
    assert statuses(made)["r"]["phase"] == "Pending"


def test_ended_reservations_are_collected_after_a_day() -> None:
    ended = {"type": "Ready", "status": "False", "reason": "Succeeded", "lastTransitionTime": rfc3339(T0)}
    made = cluster(1, reservation("r", status={"phase": "Succeeded", "nodeName": "n0", "conditions": [ended]}))
    for now, deleted in ((T0 + 86399, 0), (T0 + 86400, 1)):
        made.writes.clear()
        made.tick(now)
        assert sum(write.verb is Verb.DELETE for write in made.writes) == deleted


events = st.one_of(
    st.tuples(st.just("reserve"), st.integers(0, 2), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("unreserve"), st.integers(0, 2)),
    st.tuples(st.just("owner"), st.integers(0, 4), st.integers(1, 3)),
    st.tuples(st.just("stranger"), st.integers(5, 9), st.integers(1, 3)),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("fail")),
    st.tuples(st.just("wait"), st.integers(1, 4000)),
)


@settings(max_examples=80, deadline=None)
@given(history=st.lists(events, max_size=30))
def test_reservations_are_honoured_under_random_events(history: list[tuple[Any, ...]]) -> None:
    made = cluster(2)
    now = T0
    alive: dict[int, Any] = {}
    documents: dict[int, dict[str, Any]] = {}
    for event in history:
        now += 1.0
        match event:
            case ("reserve", number, cores, once) if number not in documents:
                documents[number] = reservation(f"r{number}", str(cores), allocateOnce=once)
                documents[number]["metadata"]["creationTimestamp"] = rfc3339(now)
                tell(made, documents[number], Action.ADD, now)
            case ("unreserve", number) if number in documents:
                tell(made, documents.pop(number), Action.DELETE, now)
            case ("owner" | "stranger" as kind, number, cores) if number not in alive:
                alive[number] = web(f"p{number}", str(cores)) if kind == "owner" else pod(f"p{number}", {"cpu": cores})
                made.on_pod(Action.ADD, alive[number], now)
            case ("delete", number) if number in alive:
                made.on_pod(Action.DELETE, alive.pop(number), now)
            case ("fail",):
                if made.schedule_one(now) is not None and made.bindings:
                    made.bind_failed(made.bindings.popleft(), "no", now)
            case ("wait", seconds):
                now += seconds
                made.tick(now)
        drain(made, now)
        check_room(made)


def check_room(made: Engine) -> None:
    """Per node: what pods have plus what reservations still keep is what the row says, and fits."""
    snapshot = made.snapshot
    reservations = plugin(made).ledger.reservations.values()
    for row in range(snapshot.rows_used):
        stand_ins = {each.value.uid for each in reservations if each.row == row}
        assert all(uid in snapshot.pods for uid in stand_ins)
        pods = sum(i.requests.get("cpu", 0) for uid, i in snapshot.residents[row].items() if uid not in stand_ins)
        kept = 0
        for each in reservations:
            if each.row == row:
                used = sum(requests.get("cpu", 0) for _, requests in each.consumers.values())
                kept += max(each.info.requests["cpu"] - used, 0)
        assert snapshot.requested[row, 0] == pods + kept
        assert pods + kept <= snapshot.allocatable[row, 0]


def test_a_reservation_keeps_no_owner_out_by_ports_or_load() -> None:
    container = {
        "name": "main",
        "ports": [{"containerPort": 80, "hostPort": 80}],
        "resources": {"requests": {"cpu": "2"}},
    }
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    others = {"ports": NodePorts, "load": LoadAware}
    made = engine([node("n0")], kinds={**KINDS, **others})
    usage = {"resources": {"cpu": "100m", "memory": "1Gi"}}
    report = {
        "metadata": {"name": "n0"},
        "status": {"updateTime": rfc3339(T0), "nodeMetric": {"nodeUsage": usage}},
    }
    item = msgspec.convert(report, NodeMetric)
    made.on_object(ObjectEvent(custom(NODE_METRIC), Action.ADD, Key("", "n0"), None, item), T0)
    tell(made, reservation("r", template=template))
    drain(made, T0)
    assert "uid-r" in made.snapshot.pods
    owner = web("owner", container={"ports": container["ports"], "resources": container["resources"]})
    made.on_pod(Action.ADD, owner, T0)
    assert drain(made, T0 + 1.0)["owner"] == "n0"


OWN_APP = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
NOT_BESIDE_ITSELF = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [OWN_APP]}}}
EVENLY = {"topologySpreadConstraints": [{**OWN_APP, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}


@pytest.mark.parametrize(
    "apart", [pytest.param(NOT_BESIDE_ITSELF, id="anti-affinity"), pytest.param(EVENLY, id="spread")]
)
def test_a_reservation_does_not_keep_its_owner_apart_from_itself(apart: dict[str, Any]) -> None:
    others = {"affinity": InterPodAffinity, "spread": PodTopologySpread}
    made = engine([node("n0"), node("n1")], kinds={**KINDS, **others})
    requests = {"cpu": "2"}
    inner = {"containers": [{"name": "main", "resources": {"requests": requests}}], **apart}
    tell(made, reservation("r", template={"metadata": {"labels": {"app": "web"}}, "spec": inner}))
    drain(made, T0)
    where = made.snapshot.names[made.snapshot.pods["uid-r"].row]
    assert submit(made, web("owner", "2", **apart)) == {"owner": where}
    assert where not in submit(made, web("second", "1", **apart)).values()
