"""Recommendations from reports: made, kept over a restart, filled where others asked, explained, deleted when old."""

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from api.crds import Recommendation, WorkloadProfile
from api.crds.analysis import RecommendationStatus
from api.kube.times import rfc3339
from api.protocol import ANNOTATION_ADVICE
from cluster import Key, merge_patch
from cluster.twin import Twin
from controllers.kinds import NODE_METRIC, POD, RECOMMENDATION, WORKLOAD_PROFILE
from controllers.plans.recommendations import MANAGED_BY, Recommendations
from controllers.recommend.advice import advice_of
from controllers.recommend.observed import WorkloadUsage
from controllers.runtime.view import ClusterCopy
from controllers.runtime.writes import Verb, kind_name
from tests.capacity import to_load
from tests.controllers.recommend.cluster import BEGIN, container, live, placed, pod, told
from tests.managed import added, built, copy_of, running
from tests.waiting import wait_for


def learned(
    days: int = 4, *, limit: str = "", throttled: float | None = None, waited: float | None = None, **settings: Any
) -> ClusterCopy:
    """A cluster that reported for days of a pod of two containers."""
    copy = copy_of(built(Recommendations, enabled=True, **settings), {})
    copy.view("it", full=True)
    placed(copy, pod("web-1", container("app", "1", "1Gi", limit), labels={"app": "web"}))
    live(copy, days, every=300.0, throttled=throttled, waited=waited)
    return copy


def plan(copy: ClusterCopy, now: float, **settings: Any) -> list[Any]:
    controller = built(Recommendations, enabled=True, **settings)
    return list(controller.plan(copy.view("it", full=True), now).writes)


def stored(copy: ClusterCopy, now: float) -> Recommendation:
    """Carry out the writes about one object."""
    found: dict[str, Any] = {}
    for write in plan(copy, now):
        if write.verb is Verb.CREATE:
            found = dict(write.body)
        elif write.subresource == "status":
            found["status"] = write.body["status"]
    made = msgspec.convert(found, Recommendation)
    copy.apply(RECOMMENDATION, added([made]))
    return made


END = BEGIN + 4 * 86400


def test_requests_bounds_and_replicas_of_a_workload() -> None:
    made = stored(learned(), END)
    assert made.spec.target.workload is not None
    assert (made.spec.target.workload.kind, made.spec.target.workload.name) == ("Deployment", "web")
    assert made.metadata.labels == MANAGED_BY
    assert made.status.pod_status is not None
    (of_container,) = made.status.pod_status.container_statuses
    assert of_container.container_name == "app"
    assert int(of_container.resources["cpu"][:-1]) == pytest.approx(9200, rel=0.06), (
        "the 90th percentile of a day with 8 hours of 8 cores, and 15 %"
    )
    assert int(of_container.resources["memory"]) == pytest.approx(1.15e9, rel=0.06)
    assert {each.type: each.status for each in made.status.conditions} == {"LowConfidence": "False"}
    advice = advice_of(made)
    assert advice is not None
    assert advice.replicas is not None
    assert advice.replicas.min_replicas <= 3
    assert advice.replicas.max_replicas >= 12


def test_nothing_is_written_again_while_nothing_changes_or_too_soon() -> None:
    copy = learned()
    stored(copy, END)
    assert plan(copy, END + 7200) == []


def test_a_restart_keeps_what_was_published_until_it_knows_as_much() -> None:
    made = stored(learned(), END)
    copy = copy_of(built(Recommendations, enabled=True), {RECOMMENDATION: [made]})
    copy.view("it", full=True)
    placed(copy, pod("web-1", container("app", "1", "1Gi")))
    for minute in range(120):
        copy.apply(NODE_METRIC, told(END + 60 * minute, {"web-1": ("100m", "1G")}))
    assert plan(copy, END + 7200) == []
    for minute in range(120, 2 * 1440):
        copy.apply(NODE_METRIC, told(END + 60 * minute, {"web-1": ("100m", "1G")}))
    writes = plan(copy, END + 2 * 86400)
    assert [(each.verb, each.subresource) for each in writes] == [(Verb.PATCH, ""), (Verb.PATCH, "status")]


def test_throttling_of_a_busy_container_asks_for_a_larger_limit_and_of_an_idle_one_does_not() -> None:
    busy = advice_of(stored(learned(limit="1", throttled=0.5), END))
    idle = advice_of(stored(learned(limit="40", throttled=0.5), END))
    assert busy is not None
    assert idle is not None
    assert busy.containers[0].limit_millicores == pytest.approx(8500, rel=0.06)
    assert idle.containers[0].limit_millicores is None, "ordinary use is far below the limit: bursts, not the limit"
    assert busy.throttled == pytest.approx(0.5)


def test_the_loss_that_a_larger_request_would_have_cured_is_told_and_explained() -> None:
    copy = learned(waited=0.25)
    made = stored(copy, END)
    advice = advice_of(made)
    assert advice is not None
    (app,) = advice.containers
    assert app.waited_seconds == pytest.approx(0.25 * 86400, rel=0.01)
    assert app.cured_seconds == pytest.approx(0.25 * 86400, rel=0.06), "8 cores and the wait are within 9.2 cores"
    assert app.request_millicores == 1000
    key = Key("d", made.metadata.name)
    lines = built(Recommendations, enabled=True).explain(
        copy.view("it", full=True), kind_name(RECOMMENDATION), key, END
    )
    (line,) = [line for line in lines if "waits" in line]
    assert "instead of 1000m would have cured" in line


def test_of_what_is_waited_beyond_the_request_nothing_is_cured_and_without_waits_nothing_is_told() -> None:
    large, silent = (advice_of(stored(learned(waited=waited), END)) for waited in (4.0, None))
    assert large is not None
    assert silent is not None
    app = large.containers[0]
    # 16 hours of 1 core and 8 of 8 cores, aged: of 4 s a second the request entitles to 4 in the first, to 1.2 then
    assert app.waited_seconds == pytest.approx(4 * 86400, rel=0.01)
    assert app.cured_seconds is not None
    assert app.cured_seconds < 0.9 * 4 * 86400
    assert silent.containers[0].waited_seconds is None
    assert silent.containers[0].cured_seconds is None
    assert "cured" not in msgspec.json.encode(silent).decode()


def asked(name: str, **target: Any) -> Recommendation:
    document = {"metadata": {"name": name, "namespace": "d", "resourceVersion": "1"}, "spec": {"target": target}}
    return msgspec.convert(document, Recommendation)


def test_objects_of_others_get_a_status() -> None:
    copy = learned(create=False)
    by_name = asked("mine", type="workload", workload={"kind": "Deployment", "name": "web"})
    by_label = asked("labelled", type="podSelector", podSelector={"matchLabels": {"app": "web"}})
    nobody = asked("nobody", type="podSelector", podSelector={"matchLabels": {"app": "none"}})
    empty = asked("empty", type="podSelector")
    copy.apply(RECOMMENDATION, added([by_name, by_label, nobody, empty]))
    writes = plan(copy, END, create=False)
    assert {each.key.name for each in writes} == {"mine", "labelled"}
    amounts = [each.body["status"]["podStatus"] for each in writes if each.subresource == "status"]
    assert amounts[0] == amounts[1]


class Counted(dict[str, int]):
    """A mapping that counts how often all of it is gone through."""

    looks = 0

    def __iter__(self) -> Iterator[str]:
        self.looks += 1
        return super().__iter__()


def test_workloads_are_gone_through_once_for_all_selectors() -> None:
    copy = learned(days=1)
    selector = {"type": "podSelector", "podSelector": {"matchLabels": {"app": "web"}}}
    copy.apply(RECOMMENDATION, added([asked(f"r{number}", **selector) for number in range(5)]))
    observed = copy.view("it", full=True).of(WorkloadUsage)
    observed.rows = counted = Counted(observed.rows)
    assert {each.key.name for each in plan(copy, BEGIN + 86400)} >= {f"r{number}" for number in range(5)}
    assert counted.looks == 1


def test_a_sensitive_workload_is_advised_a_lower_target() -> None:
    copy = learned()
    calm = advice_of(stored(copy, END))
    spec = {"workload": {"kind": "Deployment", "name": "web"}, "container": ""}
    sensitivity = [{"loadFrom": 0, "loadTo": 100, "lostSecondsPerPressure": 0.5, "samples": 9}]
    status = {"resources": [{"name": "cpu", "sensitivity": sensitivity}]}
    profile = {"metadata": {"name": "p", "namespace": "d"}, "spec": spec, "status": status}
    again = learned()
    again.apply(WORKLOAD_PROFILE, added([msgspec.convert(profile, WorkloadProfile)]))
    sensitive = advice_of(stored(again, END))
    assert calm is not None
    assert calm.replicas is not None
    assert sensitive is not None
    assert sensitive.replicas is not None
    assert sensitive.replicas.harm == pytest.approx(0.25)
    assert sensitive.replicas.target_cpu_utilization_percent < calm.replicas.target_cpu_utilization_percent


def test_an_object_of_which_nothing_is_heard_is_deleted_if_it_is_ours() -> None:
    ours = msgspec.structs.replace(
        asked("a", type="workload", workload={"kind": "Job", "name": "gone"}),
        status=msgspec.convert({"updateTime": rfc3339(BEGIN)}, RecommendationStatus),
    )
    labelled = msgspec.structs.replace(
        ours, metadata=msgspec.structs.replace(ours.metadata, name="b", labels=MANAGED_BY)
    )
    copy = copy_of(built(Recommendations, enabled=True), {RECOMMENDATION: [ours, labelled]})
    copy.view("it", full=True)
    assert plan(copy, BEGIN + 86400) == []
    (write,) = plan(copy, BEGIN + 15 * 86400)
    assert (write.verb, write.key.name) == (Verb.DELETE, "b")


def test_the_stored_object_explains_itself() -> None:
    copy = learned(limit="1", throttled=0.5)
    made = stored(copy, END)
    controller = built(Recommendations, enabled=True)
    fresh = copy_of(controller, {RECOMMENDATION: [made]}).view("it", full=True)
    key = Key("d", made.metadata.name)
    text = "\n".join(controller.explain(fresh, kind_name(RECOMMENDATION), key, END))
    assert "p90 of use" in text
    assert "p99 of use and throttled time" in text
    assert "the highest hour of the coming week" in text
    torn = msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, annotations={ANNOTATION_ADVICE: "{"})
    )
    other = copy_of(controller, {RECOMMENDATION: [torn]}).view("it", full=True)
    assert controller.explain(other, kind_name(RECOMMENDATION), key, END) == ()


def test_a_running_manager_writes_it() -> None:
    with Twin() as twin, twin.client() as client:
        for resource in (NODE_METRIC, RECOMMENDATION, WORKLOAD_PROFILE):
            twin.serve(resource)
        twin.load(POD, [to_load(pod("web-1", container("app", "1", "1Gi")))])
        twin.load(NODE_METRIC, [to_load(told(BEGIN, {"web-1": ("1", "1G")})[0].new)])

        def done() -> bool:
            status = told(BEGIN + next(turns) * 60, {"web-1": ("1", "1G")})[0].new.status
            body = merge_patch({"status": msgspec.to_builtins(status)})
            client.patch(NODE_METRIC, Key("", "n1"), body, subresource="status")
            return any(each.get("status") for each in twin.objects(RECOMMENDATION).values())

        turns = itertools.count(1)
        controllers = {"recommendations": built(FastRecommendations, enabled=True, least_days=0.0)}
        with running(twin, controllers, clock=lambda: BEGIN + 86_400):
            wait_for(done)
            (found,) = (msgspec.convert(each, Recommendation) for each in twin.objects(RECOMMENDATION).values())
        assert found.status.pod_status is not None
        assert advice_of(found) is not None


class FastRecommendations(Recommendations):
    """Plans every tenth of a second."""

    period_seconds = 0.1
