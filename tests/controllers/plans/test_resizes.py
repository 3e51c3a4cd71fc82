"""Resizes of running pods: only where asked for, a dry run first, one pod of a workload at a time."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from api.crds import Recommendation
from api.protocol import ANNOTATION_ADVICE, ANNOTATION_UPDATE_MODE
from cluster import Key
from cluster.twin import Twin
from controllers.kinds import NODE_METRIC, POD, RECOMMENDATION
from controllers.plans.resizes import IN_PLACE, Resizes
from controllers.recommend.advice import Advice, ContainerAdvice
from controllers.recommend.observed import WorkloadUsage
from controllers.recommend.report import Amounts
from controllers.runtime.view import ClusterCopy
from controllers.runtime.writer import Writer
from controllers.runtime.writes import Write, Writes, kind_name
from tests.capacity import to_load
from tests.controllers.recommend.cluster import BEGIN, WEB, container, placed, pod, told
from tests.managed import built, copy_of

OWN = ContainerAdvice(name="app", cpu_millicores=Amounts(400, 600, 900))


def asked(mode: str = IN_PLACE, days: float = 1.0, advice: str | None = None) -> Recommendation:
    text = (
        advice if advice is not None else msgspec.json.encode(Advice(containers=[OWN], confidence_days=days)).decode()
    )
    annotations = {ANNOTATION_ADVICE: text, ANNOTATION_UPDATE_MODE: mode}
    meta = {"name": "web", "namespace": "d", "resourceVersion": "1", "annotations": annotations}
    spec = {"target": {"type": "workload", "workload": {"kind": "Deployment", "name": "web"}}}
    return msgspec.convert({"metadata": meta, "spec": spec}, Recommendation)


def cluster(stored: Recommendation, cpu: str = "2", **status: Any) -> ClusterCopy:
    """Two pods of a workload, reported."""
    copy = copy_of(built(Resizes, enabled=True), {RECOMMENDATION: [stored]})
    copy.view("it", full=True)
    pods = [pod(name, container("app", cpu), container("other", "1")) for name in ("web-1", "web-2")]
    first = msgspec.structs.replace(
        pods[0], status=msgspec.convert({"phase": "Running", **status}, type(pods[0].status))
    )
    placed(copy, first, pods[1])
    copy.apply(NODE_METRIC, told(BEGIN, {"web-1": ("1", "1G"), "web-2": ("1", "1G")}))
    return copy


def plan(copy: ClusterCopy, **settings: Any) -> Writes:
    return built(Resizes, enabled=True, **settings).plan(copy.view("it", full=True), BEGIN)


def test_a_dry_run_says_what_it_would_do() -> None:
    found = plan(cluster(asked()))
    assert not found.writes
    (event,) = found.warnings
    assert (event.regarding.name, event.reason, event.type) == ("web-1", "WouldResize", "Normal")
    assert "app: requests cpu 600m" in event.note


def test_one_pod_of_a_workload_is_resized_at_a_time() -> None:
    (write,) = plan(cluster(asked()), dry_run=False).writes
    assert (write.key.name, write.subresource, write.strategic) == ("web-1", "resize", True)
    assert write.body == {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "600m"}}}]}}
    pending = [{"type": "PodResizePending", "status": "True"}]
    assert not plan(cluster(asked(), conditions=pending), dry_run=False).writes, "the next one waits"
    refused = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    assert plan(cluster(asked(), conditions=refused), dry_run=False).writes, "its node will never do it"


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(asked(mode="Off"), id="not asked for"),
        pytest.param(asked(days=0.9), id="not sure"),
        pytest.param(asked(advice="{"), id="torn"),
    ],
)
def test_nothing_is_resized(stored: Recommendation) -> None:
    found = plan(cluster(stored), dry_run=False)
    assert not found.writes
    assert not found.warnings


def test_a_pod_that_fits_is_left_alone() -> None:
    assert not plan(cluster(asked(), cpu="500m"), dry_run=False).writes


def test_no_pod_of_another_namespace_is_resized() -> None:
    copy = cluster(asked(), cpu="500m")
    observed = copy.view("it", full=True).of(WorkloadUsage)
    strange = pod("db-0", container("app", "2"))
    strange = msgspec.structs.replace(strange, metadata=msgspec.structs.replace(strange.metadata, namespace="e"))
    observed.specs[Key("e", "db-0")] = strange
    observed.pods[observed.rows[WEB]].add(Key("e", "db-0"))
    assert not plan(copy, dry_run=False).writes


def test_the_other_containers_stay_as_they_are() -> None:
    copy = cluster(asked())
    (write,) = plan(copy, dry_run=False).writes
    with Twin() as twin, twin.client() as client:
        twin.load(POD, [to_load(each) for each in copy.view("it", full=True).objects(POD).values()])
        answers: list[Any] = []
        writer = Writer(client, 1, answers.append, lambda: True)
        writer.submit("resizes", [on_any_version(write)])
        writer.stop()
        stored = client.get(POD, write.key)
    assert [answer.error for answer in answers] == [""]
    amounts = {each.name: each.resources.requests["cpu"] for each in stored.spec.containers}
    assert amounts == {"app": "600m", "other": "1"}


@pytest.mark.parametrize(
    ("stored", "settings", "words"),
    [
        pytest.param(asked(), {}, "an Event says", id="dry run"),
        pytest.param(asked(), {"dry_run": False}, "one after the other", id="resized"),
        pytest.param(asked(mode="Off"), {}, "update-mode is not InPlace", id="not asked for"),
        pytest.param(asked(days=0.5), {}, "0.50 days of samples are less than 1", id="not sure"),
        pytest.param(asked(advice="{"), {}, "0.00 days", id="torn"),
    ],
)
def test_a_recommendation_says_whether_pods_are_resized(
    stored: Recommendation, settings: dict[str, Any], words: str
) -> None:
    controller = built(Resizes, enabled=True, **settings)
    view = cluster(stored).view("it", full=True)
    (line,) = controller.explain(view, kind_name(RECOMMENDATION), Key("d", "web"), BEGIN)
    assert words in line
    assert not controller.explain(view, kind_name(POD), Key("d", "web"), BEGIN)


def on_any_version(write: Write) -> Write:
    """Return the write on any version of the pod, to its spec itself: the twin has no kubelet that resizes."""
    return replace(write, version="", subresource="")
