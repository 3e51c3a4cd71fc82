"""InterferenceAware in an engine: predictions place pods, verdicts keep them off, sentences say why."""

import json
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from api.crds import NODE_METRIC, NodeMetric, WorkloadProfile
from api.kube.times import rfc3339
from api.protocol import ANNOTATION_SLOW_RATIO
from cluster.events import Event, EventRecorder
from cluster.resources import NODES, PODS, Key
from cluster.twin import Twin
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent
from scheduler.loop import Loop
from scheduler.plugins.defaultpreemption import DefaultPreemption
from scheduler.plugins.interference import NODE_METRICS, PROFILES, Interference
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.profile import SchedulerSettings
from tests.schedobjects import drain, engine, in_a_thread, node, pod, rejected, totals
from tests.waiting import wait_for

KINDS = {"interference": Interference}
STRICT = {"interference": {"strict": True}}


def profile(workload: str, *, lost: float = 0.0, push: float = 0.0, resource: str = "cpu") -> WorkloadProfile:
    bins = [{"loadFrom": 0, "loadTo": 1, "lostSecondsPerPressure": lost, "samples": 5}]
    document = {
        "metadata": {"name": workload, "namespace": "default"},
        "spec": {"workload": {"kind": "StatefulSet", "name": workload}, "container": "main"},
        "status": {
            "samples": 5,
            "resources": [{"name": resource, "sensitivity": bins, "aggressiveness": push}],
        },
    }
    return msgspec.convert(document, WorkloadProfile)


def of(workload: str, number: int = 0, **fields: Any) -> Any:
    owner = {"kind": "StatefulSet", "name": workload, "uid": workload}
    return pod(f"{workload}-{number}", owner=owner, **fields)


def report(*verdicts: dict[str, Any], name: str = "a") -> NodeMetric:
    listed = [{"resource": "cpu", "lostSecondsPerSecond": 0.3, **each} for each in verdicts]
    status = {"extensions": {"interference": {"verdicts": listed}}}
    return msgspec.convert({"metadata": {"name": name}, "status": status}, NodeMetric)


def state(made: Engine, *verdicts: dict[str, Any], name: str = "a", now: float = 0.0) -> Engine:
    made.on_object(ObjectEvent(NODE_METRICS, Action.UPDATE, Key("", name), None, report(*verdicts, name=name)), now)
    return made


def learn(made: Engine, *profiles: WorkloadProfile) -> Engine:
    for each in profiles:
        key = Key("default", each.metadata.name)
        before = made.objects(PROFILES).get(key)
        made.on_object(ObjectEvent(PROFILES, Action.UPDATE if before else Action.ADD, key, before, each), 0.0)
    return made


def plugin(made: Engine) -> Interference:
    found = made.plugins["InterferenceAware"]
    assert isinstance(found, Interference)
    return found


def test_sensitive_pods_and_hogs_part_company() -> None:
    made = engine([node("a"), node("b")], [of("hog", nodeName="a")], kinds=KINDS)
    learn(made, profile("web", lost=0.4, push=0.05), profile("hog", push=0.5))
    assert totals(made, of("web")) == {"a": 100 * 50_000 // 250_000, "b": 100}
    made.on_pod(Action.ADD, of("web", 1), 0.0)
    assert drain(made) == {"web-1": "b"}
    assert totals(made, of("hog", 1)) == {"a": 100, "b": 100 * 50_000 // 250_000}


def test_strangers_have_no_preference() -> None:
    made = learn(engine([node("a"), node("b")], [of("hog", nodeName="a")], kinds=KINDS), profile("hog", push=0.5))
    assert totals(made, pod("loner")) == {"a": 100, "b": 100}
    assert totals(made, of("unknown")) == {"a": 100, "b": 100}


def test_a_profile_learned_later_counts_for_those_already_placed() -> None:
    made = engine([node("a")], [of("hog", n, nodeName="a") for n in range(2)], kinds=KINDS)
    learn(made, profile("web", lost=0.4))
    assert totals(made, of("web")) == {"a": 100}
    learn(made, profile("hog", push=0.25))
    assert totals(made, of("web")) == {"a": 20}
    learn(made, profile("hog", push=0.05))
    assert totals(made, of("web")) == {"a": 55}
    made.on_pod(Action.DELETE, of("hog", 0, nodeName="a"), 0.0)
    assert totals(made, of("web")) == {"a": 71}


def test_profiles_may_come_from_the_settings() -> None:
    wire = [json.loads(msgspec.json.encode(each)) for each in (profile("web", lost=0.4), profile("hog", push=0.5))]
    made = engine(
        [node("a"), node("b")], [of("hog", nodeName="a")], kinds=KINDS, plugins={"interference": {"profiles": wire}}
    )
    assert totals(made, of("web")) == {"a": 20, "b": 100}


CPU = "node(s) under cpu interference that the pod is sensitive to"
OWN = "node(s) where the pod's own workload disturbs a neighbour"


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        pytest.param(of("web"), [CPU], id="sensitive by profile"),
        pytest.param(of("calm"), [], id="insensitive by profile"),
        pytest.param(of("new", labels={"koordinator.sh/qosClass": "LS"}), [CPU], id="unprofiled LS"),
        pytest.param(of("new", labels={"koordinator.sh/qosClass": "BE"}), [], id="unprofiled BE"),
        pytest.param(of("hog"), [OWN], id="the culprit"),
        pytest.param(pod("loner"), [], id="a stranger"),
    ],
)
def test_verdicts_keep_off(candidate: Any, expected: list[str]) -> None:
    made = state(engine([node("a"), node("b")], kinds=KINDS), {"culprits": ["StatefulSet/default/hog"]})
    learn(made, profile("web", lost=0.4), profile("calm", lost=0.001, push=0.01), profile("hog", push=0.5))
    assert rejected(made, candidate) == {"a": expected, "b": []}


def test_verdicts_of_other_resources_do_not_matter() -> None:
    made = state(engine([node("a")], kinds=KINDS, plugins=STRICT), {"resource": "blockio"})
    learn(made, profile("web", lost=0.4), profile("db", lost=0.4, resource="block-io"))
    assert rejected(made, of("web")) == {"a": []}
    assert rejected(made, of("db")) == {"a": [CPU.replace("cpu", "block-io")]}


@pytest.mark.parametrize("until", [None, rfc3339(300.0)])
def test_verdicts_end(until: str | None) -> None:
    made = state(engine([node("a")], kinds=KINDS, plugins=STRICT), {"until": until})
    learn(made, profile("web", lost=0.4))
    made.tick(0.0)
    made.tick(299.0)
    assert rejected(made, of("web")) == {"a": [CPU]}
    made.tick(300.0)
    assert rejected(made, of("web")) == {"a": []}


def test_a_verdict_of_the_first_lists_holds_for_its_time_from_the_first_tick_on() -> None:
    made = engine([node("a")], kinds=KINDS, plugins=STRICT)
    learn(state(made, {}, now=1.8e9), profile("web", lost=0.4))
    for seconds, expected in ((0.0, [CPU]), (299.0, [CPU]), (300.0, [])):
        made.tick(1.8e9 + seconds)
        assert rejected(made, of("web")) == {"a": expected}


def test_small_verdicts_can_be_passed_over() -> None:
    made = engine([node("a")], kinds=KINDS, plugins={"interference": {"verdict_lost_seconds": 0.31}})
    assert rejected(learn(state(made, {}), profile("web", lost=0.4)), of("web")) == {"a": []}


def test_reports_state_and_withdraw_verdicts() -> None:
    made = learn(engine([node("a")], kinds=KINDS, plugins=STRICT), profile("web", lost=0.4))
    for listed, expected in (([{"resource": "cpu"}], [CPU]), ([], [])):
        pods = [{"name": "w", "namespace": "ns", "extensions": {"interference": {"verdicts": listed}}}]
        metric = msgspec.convert({"metadata": {"name": "a"}, "status": {"podsMetric": pods}}, NodeMetric)
        made.on_object(ObjectEvent(NODE_METRICS, Action.UPDATE, Key("", "a"), None, metric), 0.0)
        assert rejected(made, of("web")) == {"a": expected}


def test_a_report_seen_before_its_node_counts() -> None:
    made = learn(engine([node("b")], kinds=KINDS), profile("web", lost=0.4))
    made.on_object(ObjectEvent(NODE_METRICS, Action.ADD, Key("", "a"), None, report({})), 0.0)
    made.on_node(Action.ADD, node("a"), 1.0)
    assert rejected(made, of("web")) == {"a": [CPU], "b": []}


def test_a_node_that_changes_keeps_its_verdicts_and_one_that_went_leaves_none() -> None:
    made = learn(state(engine([node("a")], kinds=KINDS, plugins=STRICT), {}), profile("web", lost=0.4))
    made.on_node(Action.UPDATE, node("a", labels={"zone": "1"}), 1.0)
    assert rejected(made, of("web")) == {"a": [CPU]}
    made.on_object(ObjectEvent(NODE_METRICS, Action.DELETE, Key("", "a"), report({}), None), 2.0)
    assert rejected(made, of("web")) == {"a": []}


def test_it_explains_itself() -> None:
    made = engine([node("a")], [of("hog", nodeName="a")], kinds=KINDS)
    state(made, {"victim": "default/web-9"})
    learn(made, profile("web", lost=0.4, push=0.05), profile("hog", push=0.5, lost=0.01))
    info = made.classes.info(of("web"))
    assert plugin(made).explain(info, 0) == (
        "default/web-0 on a would cost 0.201 lost s/s: it would lose 0.2 to cpu, its neighbours 0.0005 to cpu;"
        " under verdict: default/web-9 loses to cpu"
    )
    described = plugin(made).describe("a")
    assert described["pressure"] == {"cpu": 0.5}
    assert described["residents"] == {"default/hog-0": "StatefulSet default/hog"}
    assert described["verdicts"][0]["victim"] == "default/web-9"
    assert (
        plugin(made).explain(made.classes.info(pod("loner")), 0).startswith("no loss predicted for default/loner on a")
    )


def test_a_slow_node_scores_less_whichever_rows_were_asked_again() -> None:
    slow = {ANNOTATION_SLOW_RATIO: "1.50"}
    made = engine([node("a"), node("b", annotations=slow)], kinds=KINDS)
    assert totals(made, pod("loner")) == {"a": 100, "b": 66}
    made.on_node(Action.UPDATE, node("a", labels={"zone": "1"}), 1.0)
    assert totals(made, pod("loner")) == {"a": 100, "b": 66}


LS = {"koordinator.sh/qosClass": "LS"}


def loses(lost: float, **fields: Any) -> dict[str, Any]:
    return {"lostSecondsPerSecond": lost, **fields}


def test_of_nodes_that_are_all_under_verdict_the_pod_goes_to_the_one_that_loses_least() -> None:
    made = engine([node(name) for name in "abc"], kinds=KINDS)
    for name, verdict in (("a", loses(0.3)), ("b", loses(0.1)), ("c", loses(0.2))):
        state(made, verdict, name=name)
    made.on_pod(Action.ADD, of("new", labels=LS), 0.0)
    assert drain(made) == {"new-0": "b"}
    assert [reason.text for reason in made.outcomes[-1].despite] == [CPU]
    # What a report says later counts, though the resources are the same.
    state(made, loses(0.01), name="a")
    made.on_pod(Action.ADD, of("new", 1, labels=LS), 0.0)
    assert drain(made) == {"new-1": "a"}


def test_a_verdict_costs_what_it_states_and_only_pods_that_it_concerns() -> None:
    culprits = {"culprits": ["StatefulSet/default/hog"]}
    made = state(engine([node("a")], kinds=KINDS), loses(0.05, **culprits), loses(0.45, resource="network"))
    learn(made, profile("web", lost=0.4), profile("calm", lost=0.001, push=0.01), profile("hog", push=0.5))
    assert totals(made, of("web")) == {"a": 50}
    assert totals(made, of("hog")) == {"a": 50}
    assert totals(made, of("calm")) == {"a": 100}
    assert totals(made, of("new", labels=LS)) == {"a": 100 * 5 // 55}


def test_a_loss_beyond_measure_is_counted_up_to_a_bound() -> None:
    made = state(engine([node("a"), node("b")], kinds=KINDS), loses(1e300), loses(-5.0))
    state(made, loses(0.1), name="b")
    made.on_pod(Action.ADD, of("new", labels=LS), 0.0)
    assert drain(made) == {"new-0": "b"}


def test_another_node_takes_the_pod_while_one_is_under_verdict() -> None:
    made = state(engine([node("a"), node("b")], kinds=KINDS), {})
    made.on_pod(Action.ADD, of("new", labels=LS), 0.0)
    assert drain(made) == {"new-0": "b"}
    assert not any(outcome.despite for outcome in made.outcomes)


def test_strict_settings_leave_the_pod_pending_with_the_reason_and_preempt_none() -> None:
    kinds = {**KINDS, "fit": NodeResourcesFit, "preemption": DefaultPreemption}
    made = engine([node("a")], [of("batch", nodeName="a", priority=1)], kinds=kinds, plugins=STRICT)
    state(made, {"culprits": ["StatefulSet/default/batch"]})
    made.on_pod(Action.ADD, of("new", labels=LS, priority=10), 0.0)
    outcome = made.schedule_one(0.0)
    assert outcome is not None
    assert outcome.message == (
        f"0/1 nodes are available: 1 {CPU}. preemption: 0/1 nodes are available:"
        " 1 Preemption is not helpful for scheduling."
    )
    assert outcome.rejected_by == {"InterferenceAware"}
    assert not outcome.victims


def test_on_a_cluster_of_one_node_under_verdict_the_pod_is_bound_with_an_event() -> None:
    recorded: list[Event] = []
    with Twin() as twin:
        twin.load(NODES, [msgspec.to_builtins(node("a"))])
        twin.serve(NODE_METRIC)
        twin.load(NODE_METRICS, [msgspec.to_builtins(report({"until": "2099-01-01T00:00:00Z"}))])
        twin.load(PODS, [msgspec.to_builtins(of("new", labels=LS))])
        recorder = cast(EventRecorder, SimpleNamespace(record=recorded.append))
        loop = Loop(twin.client(), Engine(SchedulerSettings()), recorder=recorder)
        with in_a_thread(loop):
            wait_for(lambda: len(recorded) == 2)
        assert [item["spec"].get("nodeName") for item in twin.objects(PODS).values()] == ["a"]
    assert [(event.type, event.reason) for event in recorded] == [("Normal", "Scheduled"), ("Warning", "LastResort")]
    assert recorded[1].note == f"No other node takes the pod than a, which was avoided: {CPU}."
