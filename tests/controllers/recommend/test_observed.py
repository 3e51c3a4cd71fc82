"""Usage of workloads from reports: by container, summed over pods, forecast by the hour; odd reports tell nothing."""

import math
from typing import Any

import msgspec
import numpy as np
import pytest

from api.kube.times import rfc3339
from cluster import DeltaType, Key, StoreDelta
from controllers.forecast.seasonal import Forecast
from controllers.kinds import NODE_METRIC, POD, PodStatus
from controllers.recommend import observed as module
from controllers.recommend import rows as row_module
from controllers.recommend.observed import WorkloadUsage
from controllers.recommend.outlook import MIN_HOURS, ObservedUsage
from controllers.recommend.samples import containers_of, shares
from tests.controllers.recommend.cluster import BEGIN, WEB, changed, container, gone, live, placed, pod, told


def learning(*pods: Any) -> tuple[WorkloadUsage, ObservedUsage]:
    table = WorkloadUsage()
    found = table.value()
    placed(table, *pods)
    return table, found


def test_nothing_is_learned_before_it_is_asked_for() -> None:
    table = WorkloadUsage()
    placed(table, pod("web-1", container("app")))
    table.apply(NODE_METRIC, told(BEGIN, {"web-1": ("1", "1G")}))
    assert not table.value().rows


def test_use_is_shared_as_containers_ask_for_it() -> None:
    table, found = learning(pod("web-1", container("app", "750m", "1Gi"), container("proxy", "250m", "1Gi")))
    for step in range(60):
        table.apply(NODE_METRIC, told(BEGIN + 60 * step, {"web-1": ("2", "4G")}))
    rows = found.aggregates[found.rows[WEB]]
    places = np.array([rows["app"], rows["proxy"]])
    assert found.usage.cpu.percentile(places, 0.5) == pytest.approx([1.5, 0.5], rel=0.06)
    assert found.usage.memory.percentile(places, 0.5) == pytest.approx([2e9, 2e9], rel=0.06)
    assert found.usage.cpu_samples[places].tolist() == [60, 60]


def test_shares_without_requests_are_equal_and_sidecars_count() -> None:
    plain = pod("a", container("x"), container("y"))
    assert shares(plain.spec.containers) == [("x", 0.5, 0.5), ("y", 0.5, 0.5)]
    sidecar = {**container("mesh", "1"), "restartPolicy": "Always"}
    found = containers_of(pod("a", container("x", "3"), initContainers=[container("once"), sidecar]))
    assert [(name, cpu) for name, cpu, _ in shares(found)] == [("x", 0.75), ("mesh", 0.25)]
    odd = pod("a", container("x", "3 apples"), container("y", "1"))
    assert [cpu for _, cpu, _ in shares(odd.spec.containers)] == [0.0, 1.0]


def test_the_sum_follows_pods_over_nodes() -> None:
    here = [pod(name, container("app", "1")) for name in ("a", "b")]
    table, found = learning(*here, pod("c", container("app", "1"), nodeName="n2"))
    table.apply(NODE_METRIC, told(BEGIN, {"a": ("1", "1G"), "b": ("2", "1G")}))
    table.apply(NODE_METRIC, told(BEGIN + 10, {"c": ("4", "1G")}, node="n2"))
    assert found.ahead(WEB).now_cores == pytest.approx(7)  # type: ignore[union-attr]
    table.apply(NODE_METRIC, told(BEGIN + 60, {"a": ("3", "1G")}))
    assert found.ahead(WEB).now_cores == pytest.approx(7), "b is no longer reported"  # type: ignore[union-attr]
    table.apply(POD, gone("c"))
    assert found.ahead(WEB).now_cores == pytest.approx(3)  # type: ignore[union-attr]
    assert [each.metadata.name for each in found.replicas(WEB)] == ["a"]


def test_the_peak_of_every_morning_is_forecast_an_hour_before_it() -> None:
    table, found = learning(pod("web-1", container("app", "1")))
    live(table, 5)
    assert found.hour % 24 == 23
    day = 5 * 86400
    table.apply(NODE_METRIC, told(BEGIN + day + 8 * 3600, {"web-1": ("1", "1G")}))
    ahead = found.ahead(WEB)
    assert ahead is not None
    assert ahead.now_cores == pytest.approx(1)
    assert ahead.this_hour_cores < 4
    assert ahead.next_hour_cores == pytest.approx(8, rel=0.3)


def test_other_threads_read_one_hour_or_the_next_while_it_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    table, found = learning(pod("web-1", container("app", "1")))
    end = live(table, 3)
    before, seen = found.ahead(WEB), []
    forecast = found.forecaster.forecast

    def looked_at(*arguments: Any) -> Forecast:
        seen.append(found.ahead(WEB))
        return forecast(*arguments)

    monkeypatch.setattr(found.forecaster, "forecast", looked_at)
    table.apply(NODE_METRIC, told(end + 3600, {"web-1": ("2", "1G")}))
    assert before is not None
    assert math.isfinite(before.this_hour_cores)
    assert seen == [before, before]
    after = found.ahead(WEB)
    assert after is not None
    assert after.hour == before.hour + 1


def test_a_young_workload_has_no_forecast() -> None:
    table, found = learning(pod("web-1", container("app", "1")))
    live(table, MIN_HOURS // 24 - 1)
    ahead = found.ahead(WEB)
    assert ahead is not None
    assert math.isnan(ahead.this_hour_cores)
    assert found.ahead("Deployment/d/other") is None


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(told(BEGIN, {"web-1": ("x", "1G")}), id="quantity"),
        pytest.param(told(BEGIN, {"web-1": ("1", "1G")}, workload=7), id="workload"),
        pytest.param(told(BEGIN, {"web-1": ("1", "1G")}, workload="web"), id="no path"),
        pytest.param(told(BEGIN, {"stranger": ("1", "1G")}), id="no pod"),
        pytest.param(told(BEGIN, {"web-1": ("1", "1G")}, node="n2"), id="pod of another node"),
        pytest.param(told(BEGIN, {"web-1": ("1", "1G")}, workload="Deployment/e/web"), id="another namespace"),
    ],
)
def test_an_odd_report_tells_nothing(report: Any) -> None:
    table, found = learning(pod("web-1", container("app")))
    table.apply(NODE_METRIC, report)
    assert not found.rows


@pytest.mark.parametrize("throttled", ["x", True, math.nan, -1.0, math.inf])
def test_odd_times_of_throttling_are_none_or_zero(throttled: object) -> None:
    table, found = learning(pod("web-1", container("app")))
    table.apply(NODE_METRIC, told(BEGIN, {"web-1": ("1", "1G")}, throttled=throttled))
    known = float(found.throttled[found.rows[WEB]])
    assert math.isnan(known) or known == 0.0


def test_reports_from_the_future_and_of_the_past_tell_nothing() -> None:
    table, found = learning(pod("web-1", container("app")))
    table.now = BEGIN
    table.apply(NODE_METRIC, told(BEGIN + 86400, {"web-1": ("1", "1G")}))
    assert not found.rows
    table.apply(NODE_METRIC, told(BEGIN, {"web-1": ("1", "1G")}))
    table.apply(NODE_METRIC, told(BEGIN - 60, {"web-1": ("9", "1G")}))
    assert found.ahead(WEB).now_cores == pytest.approx(1)  # type: ignore[union-attr]


@pytest.mark.parametrize(("kind", "kept_seconds"), [("Job", module.KEPT_SECONDS), ("StatefulSet", 7200.0)])
def test_rows_of_what_is_gone_are_used_again(monkeypatch: pytest.MonkeyPatch, kind: str, kept_seconds: float) -> None:
    monkeypatch.setattr(module, "KEPT_SECONDS", kept_seconds)
    table, found = learning(*(pod(f"p{number}", container("app", "1")) for number in range(50)))
    for number in range(50):
        time = BEGIN + number * 14400.0
        table.apply(NODE_METRIC, told(time, {f"p{number}": ("1", "1G")}, workload=f"{kind}/d/j{number}"))
    assert len(found.usage) < 5, "usage of jobs that ended long ago"
    assert len(found.usage.aggregate_of) < 5
    assert len(found.rows) < 3
    assert found.usage.cpu_samples.max() == 1, "what another workload used is forgotten"


def test_a_job_that_runs_is_kept_however_old_its_report() -> None:
    table, found = learning(pod("a", container("app")), pod("b", container("app"), nodeName="n2"))
    table.apply(NODE_METRIC, told(BEGIN, {"a": ("1", "1G")}, workload="Job/d/j"))
    table.apply(NODE_METRIC, told(BEGIN + 86400, {"b": ("1", "1G")}, node="n2"))
    assert "Job/d/j" in found.rows


def test_a_workload_has_so_many_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_module, "MOST_CONTAINERS", 2)
    table, found = learning(pod("a", container("x"), container("y"), container("z")), pod("b", container("w")))
    for minute in range(2):
        table.apply(NODE_METRIC, told(BEGIN + 60 * minute, {"a": ("3", "1G")}))
    table.apply(NODE_METRIC, told(BEGIN + 120, {"b": ("3", "1G")}))
    assert list(found.aggregates[found.rows[WEB]]) == ["x", "y"]
    assert found.usage.cpu_samples.tolist() == [2, 2]


def test_there_is_room_for_so_many_workloads(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(row_module, "MOST_WORKLOADS", 3)
    table, found = learning(*(pod(f"p{number}", container("app")) for number in range(5)))
    for number in range(5):
        table.apply(NODE_METRIC, told(BEGIN + number, {f"p{number}": ("1", "1G")}, workload=f"Job/d/j{number}"))
    assert len(found.rows) == 3
    assert found.refused == 2
    assert caplog.text.count("no room for Job/d/j") == 1, "once an hour"


def test_what_a_silent_node_said_counts_no_more_after_the_hour() -> None:
    table, found = learning(pod("a", container("app")), pod("b", container("app"), nodeName="n2"))
    table.apply(NODE_METRIC, told(BEGIN, {"a": ("5", "1G")}))
    table.apply(NODE_METRIC, told(BEGIN, {"b": ("1", "1G")}, node="n2"))
    assert found.ahead(WEB).now_cores == pytest.approx(6)  # type: ignore[union-attr]
    table.apply(NODE_METRIC, told(BEGIN + 3700, {"b": ("1", "1G")}, node="n2"))
    assert found.ahead(WEB).now_cores == pytest.approx(1)  # type: ignore[union-attr]


def test_a_node_that_goes_right_after_its_report_costs_no_other_sample() -> None:
    table, found = learning(pod("a", container("app")), pod("b", container("app"), nodeName="n2"))
    other = told(BEGIN, {"b": ("1", "1G")}, node="n2", workload="Job/d/b")
    removed = StoreDelta(DeltaType.DELETED, Key("", "n1"), None, None)
    table.apply(NODE_METRIC, [*told(BEGIN, {"a": ("5", "1G")}), *other, removed])
    assert found.usage.cpu_samples.tolist() == [1]
    assert list(found.aggregates) == [found.rows["Job/d/b"]]


def test_a_pod_that_came_back_elsewhere_stays_when_its_first_node_goes() -> None:
    table, found = learning(pod("a", container("app")))
    table.apply(NODE_METRIC, told(BEGIN, {"a": ("5", "1G")}))
    placed(table, pod("a", container("app"), nodeName="n2"))
    table.apply(NODE_METRIC, told(BEGIN, {"a": ("3", "1G")}, node="n2"))
    table.apply(NODE_METRIC, [StoreDelta(DeltaType.DELETED, Key("", "n1"), None, None)])
    assert found.ahead(WEB).now_cores == pytest.approx(3)  # type: ignore[union-attr]


def test_reports_that_come_before_the_list_of_pods_are_taken_with_it() -> None:
    table = WorkloadUsage()
    found = table.value()
    table.now = BEGIN + 50
    table.apply(NODE_METRIC, told(BEGIN, {"a": ("5", "1G")}))
    table.apply(NODE_METRIC, told(BEGIN, {"b": ("1", "1G")}, node="n2"))
    assert math.isinf(found.whole_seconds)
    placed(table, pod("a", container("app")), pod("b", container("app"), nodeName="n2"))
    assert found.ahead(WEB).now_cores == pytest.approx(6)  # type: ignore[union-attr]
    assert found.whole_seconds == BEGIN + 110


def test_a_pod_may_come_after_its_report() -> None:
    table, found = learning(pod("first", container("app")))
    table.apply(NODE_METRIC, told(BEGIN, {"web-1": ("1", "1G")}))
    table.apply(POD, changed(pod("web-1", container("app"))))
    table.apply(NODE_METRIC, told(BEGIN + 60, {"web-1": ("2", "1G")}))
    assert found.ahead(WEB).now_cores == pytest.approx(2)  # type: ignore[union-attr]


def killed(time: float, *, field: str = "lastState", name: str = "app", reason: str = "OOMKilled") -> Any:
    """A pod that asks for 1 GiB, one of whose containers ended."""
    end = {"terminated": {"reason": reason, "finishedAt": rfc3339(time)}}
    status = {"phase": "Running", "containerStatuses": [{"name": name, field: end}]}
    plain = pod("web-1", container("app", "1", "1Gi"))
    return msgspec.structs.replace(plain, status=msgspec.convert(status, PodStatus))


def memory_after(*pods: Any, reported_first: bool = True) -> float:
    table, found = learning(pod("web-1", container("app", "1", "1Gi")))
    table.now = BEGIN + 300
    if reported_first:
        table.apply(NODE_METRIC, told(BEGIN, {"web-1": ("1", "1G")}))
    for each in pods:
        placed(table, each)
    table.apply(NODE_METRIC, told(BEGIN + 120, {"web-1": ("1", "1G")}))
    return float(found.usage.memory.percentile(np.array([0]), 0.9)[0])


@pytest.mark.parametrize("field", ["state", "lastState"])
@pytest.mark.parametrize("reported_first", [True, False], ids=["reported-before", "reported-after"])
def test_a_container_that_was_killed_for_its_memory_needs_more(field: str, reported_first: bool) -> None:
    kills = [killed(BEGIN + 60, field=field), killed(BEGIN + 60)]
    assert memory_after(*kills, reported_first=reported_first) == pytest.approx(1.2 * (1 << 30), rel=0.06)


@pytest.mark.parametrize(
    "ended",
    [
        pytest.param(killed(BEGIN + 60, reason="Error"), id="another-reason"),
        pytest.param(killed(BEGIN + 60, name="other"), id="no-such-container"),
        pytest.param(killed(BEGIN - 2 * 86400), id="long-ago"),
        pytest.param(killed(BEGIN + 86400), id="in-the-future"),
    ],
)
def test_other_ends_tell_nothing_of_memory(ended: Any) -> None:
    assert memory_after(ended) == pytest.approx(1e9, rel=0.06)


def test_kills_are_forgotten_with_their_pod() -> None:
    table, _ = learning(killed(BEGIN))
    table.apply(POD, gone("web-1"))
    assert not table._kills
