"""ElasticQuota in an engine: figures in refusals, borrowing, preemption inside a quota, revoking, restarts."""

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from api.crds import ElasticQuota as QuotaObject
from api.placement import PlacementRequest, SimulatedPod
from cluster.resources import Key
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent, Verb, Write
from scheduler.outcome import Result
from scheduler.plugins.elasticquota import QUOTAS, ElasticQuota
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.simulated_placement import simulate
from tests.schedobjects import drain, engine, node, pod

KINDS = {"elasticquota": ElasticQuota, "noderesourcesfit": NodeResourcesFit}
QUOTA = "quota.scheduling.koordinator.sh/"


GROUP = "koordinator-system"
"""Namespace of the quotas that pods anywhere may name."""


def quota(name: str, low: str, high: str, **labels: str) -> QuotaObject:
    document = {
        "metadata": {
            "name": name,
            "namespace": GROUP,
            "labels": {QUOTA + key.replace("_", "-"): value for key, value in labels.items()},
        },
        "spec": {"min": {"cpu": low}, "max": {"cpu": high}},
    }
    return msgspec.convert(document, QuotaObject)


def cluster(*quotas: QuotaObject, nodes: int = 1, placed: tuple[Any, ...] = (), **config: Any) -> Engine:
    made = engine(
        [node(f"n{index}") for index in range(nodes)],
        placed,
        kinds=KINDS,
        plugins={"elasticquota": {"create_reserved_quotas": False, **config}},
    )
    for each in quotas:
        change(made, each)
    return made


def change(made: Engine, each: QuotaObject, action: Action = Action.ADD) -> None:
    after = None if action is Action.DELETE else each
    made.on_object(ObjectEvent(QUOTAS, action, Key(GROUP, each.metadata.name), None, after), 0.0)


def of(name: str, team: str, cpu: str = "1", **fields: Any) -> Any:
    labels = {QUOTA + "name": team, **fields.pop("labels", {})}
    return pod(name, {"cpu": cpu}, labels=labels, **fields)


def submit(made: Engine, *pods: Any, now: float = 0.0) -> dict[str, str]:
    for each in pods:
        made.on_pod(Action.ADD, each, now)
    return drain(made, now)


def chained(made: Engine) -> list[Write]:
    return [write for chain in made.chains for write in chain.writes]


def plugin(made: Engine) -> ElasticQuota:
    found = made.plugins["ElasticQuota"]
    assert isinstance(found, ElasticQuota)
    return found


def test_a_full_quota_says_so_with_figures() -> None:
    made = cluster(quota("team", "1", "2"))
    assert submit(made, of("a", "team"), of("b", "team"), of("c", "team", "500m")) == {"a": "n0", "b": "n0"}
    assert "quota team has no room: cpu used 2000m + requested 500m > runtime 2000m" in made.outcomes[-1].message
    assert made.outcomes[-1].rejected_by == {"ElasticQuota"}


def test_what_a_pod_gives_back_goes_to_the_next() -> None:
    made = cluster(quota("team", "1", "2"))
    submit(made, of("a", "team", "2"), of("b", "team", "2"))
    made.on_pod(Action.DELETE, of("a", "team", "2", nodeName="n0"), 20.0)
    assert drain(made, 40.0) == {"b": "n0"}


def test_idle_minimums_are_lent_until_they_are_asked_for() -> None:
    made = cluster(quota("lender", "2", "4"), quota("borrower", "2", "4"))
    assert len(submit(made, *(of(f"b{n}", "borrower") for n in range(3)))) == 3
    submit(made, of("l0", "lender"), of("b3", "borrower"))
    assert "> runtime 3000m" in made.outcomes[-1].message


def test_bound_pods_count_after_a_restart() -> None:
    made = cluster(quota("team", "1", "2"), placed=(of("old", "team", "2", nodeName="n0"),))
    assert submit(made, of("new", "team")) == {}
    assert plugin(made).summary("team")["used"] == {"cpu": 2000}


def test_the_default_quota_takes_in_everybody_else() -> None:
    made = cluster(quota("team", "1", "2"))
    assert submit(made, pod("stranger", {"cpu": "3"})) == {"stranger": "n0"}
    assert plugin(made).summary("koordinator-default-quota")["used"]["cpu"] == 3000


def test_pods_move_when_their_quota_is_made() -> None:
    made = cluster()
    submit(made, of("early", "team"))
    change(made, quota("team", "1", "2"))
    assert plugin(made).summary("team")["used"] == {"cpu": 1000}
    change(made, quota("team", "1", "2"), Action.DELETE)
    assert plugin(made).summary("koordinator-default-quota")["used"]["cpu"] == 1000


def test_preemption_stays_inside_the_quota() -> None:
    made = cluster(quota("team", "1", "2"), quota("other", "1", "2"))
    low = [of("low", "team", priority=1), of("mid", "team", priority=5), of("alien", "other", priority=0)]
    submit(made, *low)
    submit(made, of("high", "team", priority=10))
    assert [victim.pod.metadata.name for victim in made.outcomes[-1].victims] == ["low"]
    assert [write.key.name for write in chained(made) if write.verb is Verb.DELETE] == ["low"]
    assert plugin(made).summary("team")["used"] == {"cpu": 2000}
    made.on_pod(Action.DELETE, of("low", "team", nodeName="n0"), 5.0)
    assert drain(made, 20.0) == {"high": "n0"}


def test_preemption_is_for_full_quotas_only() -> None:
    made = cluster(quota("team", "1", "9"))
    submit(made, of("low", "team", "4", priority=1))
    submit(made, of("high", "team", "1", priority=10, nodeSelector={}))
    assert made.outcomes[-1].result is Result.UNSCHEDULABLE
    assert not [write for write in chained(made) if write.verb is Verb.DELETE and write.key.name != "low"]


def test_firm_pods_and_peaceful_preemptors() -> None:
    firm = {QUOTA + "preemptible": "false"}
    made = cluster(quota("team", "2", "2"))
    submit(made, of("firm", "team", "2", priority=1, labels=firm))
    submit(made, of("high", "team", priority=10))
    assert made.outcomes[-1].victims == ()
    peace = cluster(quota("team", "1", "2"))
    submit(peace, of("low", "team", "2", priority=1))
    submit(peace, of("high", "team", priority=10, preemptionPolicy="Never"))
    assert peace.outcomes[-1].victims == ()


def test_firm_pods_stay_within_the_minimum() -> None:
    made = cluster(quota("team", "1", "4"))
    firm = {QUOTA + "preemptible": "false"}
    assert submit(made, of("f", "team", labels=firm), of("g", "team", "1m", labels=firm)) == {"f": "n0"}
    assert "non-preemptible used 1000m + requested 1m > min 1000m" in made.outcomes[-1].message


def test_over_use_is_revoked_after_a_while() -> None:
    made = cluster(quota("greedy", "1", "4"), quota("owner", "3", "4"), monitor_all_quotas=True)
    submit(made, *(of(f"g{n}", "greedy", priority=n) for n in range(4)))
    submit(made, of("o", "owner", "3"))
    evicted = []
    for now in (0.0, 120.0, 121.0):
        made.writes.clear()
        made.tick(now)
        evicted.append([write.key.name for write in made.writes if write.verb is Verb.EVICT])
    assert evicted == [[], [], ["g0", "g1", "g2"]]


def test_status_is_written_when_it_changes() -> None:
    made = cluster(quota("team", "1", "2"))
    submit(made, of("a", "team"))
    made.writes.clear()
    made.tick(1.0)
    [write] = made.writes
    assert write.key == Key(GROUP, "team")
    body = write.body.body  # type: ignore[union-attr]
    assert body["status"] == {"used": {"cpu": "1"}}  # type: ignore[call-overload]
    annotations = body["metadata"]["annotations"]  # type: ignore[call-overload]
    assert json.loads(annotations[QUOTA + "runtime"]) == {"cpu": "1"}
    made.writes.clear()
    made.tick(2.0)
    assert not made.writes


def test_reserved_quotas_are_made_once() -> None:
    made = cluster(create_reserved_quotas=True)
    for now in (1.0, 2.0):
        made.tick(now)
    names = [write.key.name for write in made.writes if write.verb is Verb.CREATE]
    assert names == ["koordinator-root-quota", "koordinator-default-quota", "koordinator-system-quota"]


events = st.one_of(
    st.tuples(st.just("pod"), st.integers(0, 9), st.sampled_from(["a", "b", "c"]), st.integers(1, 3)),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("quota"), st.sampled_from(["a", "b"]), st.integers(0, 4), st.integers(0, 8)),
    st.tuples(st.just("node"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("fail"), st.integers(0, 3)),
)


@settings(max_examples=60, deadline=None)
@given(history=st.lists(events, max_size=30))
def test_sums_hold_after_any_history(history: list[tuple[Any, ...]]) -> None:
    made = cluster(quota("a", "2", "6"), quota("b", "2", "6"), quota("c", "1", "3"))
    alive: dict[int, Any] = {}
    now = 0.0
    for event in history:
        now += 20.0
        match event:
            case ("pod", number, team, cores) if number not in alive:
                alive[number] = of(f"p{number}", team, str(cores))
                made.on_pod(Action.ADD, alive[number], now)
            case ("delete", number) if number in alive:
                made.on_pod(Action.DELETE, alive.pop(number), now)
            case ("quota", name, low, high):
                low, high = sorted((low, high))
                change(made, quota(name, str(low), str(high)), Action.UPDATE)
            case ("node", number, present):
                made.on_node(Action.ADD if present else Action.DELETE, node(f"n{number}"), now)
            case ("fail", _):
                if made.schedule_one(now) is not None and made.bindings:
                    made.bind_failed(made.bindings.popleft(), "no", now)
        drain(made, now)
        made.tick(now)
    summaries = plugin(made)._summaries()
    total = sum(made.snapshot.allocatable[row, 0] for row in range(made.snapshot.rows_used) if made.snapshot.live[row])
    outside = summaries["koordinator-default-quota"]["used"].get("cpu", 0)
    assert sum(summaries[name]["runtime"]["cpu"] for name in "abc") <= max(total - outside, 0)
    for name in "abc":
        placed = [
            placement.info for placement in made.snapshot.pods.values() if placement.info.labels[QUOTA + "name"] == name
        ]
        assert summaries[name]["used"].get("cpu", 0) == sum(info.requests["cpu"] for info in placed)


def test_a_simulation_asks_for_no_quota() -> None:
    """Neither a pod that the quota turns away nor one supposed gone changes what is asked or who asks."""
    placed = (of("a", "team", nodeName="n0"), of("b", "team", nodeName="n0"))
    made = cluster(quota("team", "1", "2"), placed=placed)
    made.tick(0.0)
    before = plugin(made).summary("team")
    full = SimulatedPod(pod=of("new", "team", "1"))
    request = PlacementRequest([SimulatedPod(uid="uid-b"), full, full], ["uid-a"])
    answer = simulate(made, request, 0.0)
    assert [placement.node for placement in answer.placements] == ["n0", "n0", ""]
    assert "quota team has no room" in answer.placements[2].message
    holders = plugin(made).summary("team")["podCache"]
    assert {uid for uid, pod in holders.items() if pod["isAssigned"]} == {"uid-a", "uid-b"}
    made.tick(1.0)
    after = plugin(made).summary("team")
    assert after == before
    assert list(after["podCache"]) == list(before["podCache"])
