"""The API of external metrics: lists by label, the forecast ahead of the hour, errors as the API server writes them."""

import json
import math
from collections.abc import Iterable
from typing import Any

import pytest

from cluster.serving import Reply
from controllers.external_metrics.answers import METRICS, MOST_SERIES, ROOT, Series, ahead, answer

NOW = 1_800_000_000.0 // 3600 * 3600
HOUR = int(NOW // 3600)
WEB = Series("shop", "Deployment", "web", NOW, HOUR, 2.0, 3.0, 8.0)


def ask(target: str, *series: Series, now: float = NOW) -> tuple[int, Any]:
    def look(namespace: str) -> Iterable[Series]:
        return [each for each in series if each.namespace == namespace]

    found: Reply = answer(target, look, now, lead_seconds=900, fresh_seconds=600)
    return found.status, json.loads(found.body)


def values(target: str, *series: Series, now: float = NOW) -> dict[str, str]:
    status, found = ask(f"{ROOT}/namespaces/shop/{target}", *series, now=now)
    assert (status, found["kind"], found["apiVersion"]) == (
        200,
        "ExternalMetricValueList",
        "external.metrics.k8s.io/v1beta1",
    )
    return {each["metricLabels"]["name"]: each["value"] for each in found["items"]}


def test_what_there_is() -> None:
    status, found = ask(ROOT)
    assert status == 200
    assert found["kind"] == "APIResourceList"
    assert [each["name"] for each in found["resources"]] == list(METRICS)
    assert all(each["namespaced"] and each["verbs"] == ["get"] for each in found["resources"])


def test_series_are_selected_by_kind_and_name() -> None:
    api = WEB._replace(name="api", now_cores=0.25)
    other = WEB._replace(namespace="other")
    assert values("koord_cpu_cores", WEB, api, other) == {"web": "2000m", "api": "250m"}
    assert values("koord_cpu_cores?labelSelector=name%3Dapi", WEB, api) == {"api": "250m"}
    assert values("koord_cpu_cores?labelSelector=kind=Deployment,name=web", WEB, api) == {"web": "2000m"}
    assert values("koord_cpu_cores?labelSelector=name%20in%20(web)", WEB, api) == {"web": "2000m"}
    assert values("koord_cpu_cores?labelSelector=kind%3DJob", WEB) == {}


@pytest.mark.parametrize(
    ("series", "after_seconds", "expected"),
    [
        pytest.param(WEB, 0, 3.0, id="this hour"),
        pytest.param(WEB, 2699, 3.0, id="the next is too far away"),
        pytest.param(WEB, 2700, 8.0, id="the next is a quarter of an hour away"),
        pytest.param(WEB, 3600, 8.0, id="the next came before its first report"),
        pytest.param(WEB, 7200, 2.0, id="the forecast is old"),
        pytest.param(WEB._replace(now_cores=20.0), 2700, 20.0, id="more is used than forecast"),
        pytest.param(WEB._replace(this_hour_cores=math.nan, next_hour_cores=math.nan), 2700, 2.0, id="no forecast"),
    ],
)
def test_what_to_be_ready_for(series: Series, after_seconds: float, expected: float) -> None:
    assert ahead(series, NOW + after_seconds, 900.0) == expected


def test_the_forecast_is_what_an_autoscaler_reads() -> None:
    fresh = WEB._replace(heard_seconds=NOW + 2690)
    assert values("koord_cpu_cores_ahead", fresh, now=NOW + 2700) == {"web": "8000m"}


def test_a_workload_of_which_nothing_is_heard_has_no_metric() -> None:
    assert values("koord_cpu_cores", WEB, now=NOW + 600) == {"web": "2000m"}
    assert values("koord_cpu_cores", WEB, now=NOW + 601) == {}
    assert values("koord_cpu_cores", WEB._replace(now_cores=math.nan)) == {}


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        pytest.param("/", 404, "namespaces/NAMESPACE/METRIC", id="root"),
        pytest.param("/apis", 404, "namespaces", id="apis"),
        pytest.param(f"{ROOT}/namespaces/shop/other", 404, "koord_cpu_cores_ahead", id="metric"),
        pytest.param(f"{ROOT}/namespaces/shop", 404, "namespaces", id="namespace"),
        pytest.param(f"{ROOT}/namespaces/a/b/c/d", 404, "namespaces", id="long path"),
        pytest.param(f"{ROOT}/namespaces/shop/{'x' * 5000}", 404, "no metric", id="long name"),
        pytest.param(
            f"{ROOT}/namespaces/shop/koord_cpu_cores?labelSelector=%3B%3B", 400, "labelSelector", id="selector"
        ),
        pytest.param("//[", 400, "cannot be read", id="no path"),
        pytest.param(f"{ROOT}/namespaces/shop/%00", 404, "no metric", id="nul"),
    ],
)
def test_what_is_refused(target: str, status: int, words: str) -> None:
    code, found = ask(target, WEB)
    assert code == found["code"] == status
    assert found["kind"] == "Status"
    assert words in found["message"]
    assert len(found["message"]) < 400


def test_an_answer_is_bounded() -> None:
    many = [WEB._replace(name=f"w{number}") for number in range(MOST_SERIES + 1)]
    assert len(values("koord_cpu_cores", *many[:-1])) == MOST_SERIES
    code, found = ask(f"{ROOT}/namespaces/shop/koord_cpu_cores", *many)
    assert code == 400
    assert "labels kind and name" in found["message"]
