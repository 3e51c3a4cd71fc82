"""Extension resourcePools: peaks and workloads that the manager adds, and what it leaves as it is."""

from typing import Any

import pytest

from controllers.slo.pools import with_outlook

POOL = {"name": "a", "priorityClasses": ["koord-prod"]}
FLAT = [1000] * 24


def pools(strategy: Any, before: Any = None, *, keep: bool = False, **outlook: Any) -> Any:
    return with_outlook(strategy, before, outlook.get("peaks", {}), outlook.get("workloads", {}), keep=keep).get(
        "pools"
    )


def stated(peaks: Any, **more: Any) -> dict[str, Any]:
    return {"pools": [{**POOL, "peakMillicores": peaks, **more}]}


@pytest.mark.parametrize(
    ("before", "peaks", "keep", "expected"),
    [
        pytest.param(None, [1] * 24, False, [100] * 24, id="rounded-up"),
        pytest.param(stated(FLAT), [1090] + [1000] * 23, True, FLAT, id="little-news-is-none"),
        pytest.param(stated(FLAT), [1101] + [1000] * 23, True, [1200] + [1000] * 23, id="news"),
        pytest.param(stated(FLAT), None, True, FLAT, id="kept-after-a-restart"),
        pytest.param(stated(FLAT), None, False, None, id="too-old-to-keep"),
        pytest.param(stated(["x"]), None, True, None, id="nonsense-is-not-kept"),
        pytest.param({"pools": {"a": 1}}, None, True, None, id="no-list"),
        pytest.param([POOL], None, True, None, id="no-object"),
    ],
)
def test_peaks(before: Any, peaks: Any, keep: bool, expected: Any) -> None:
    found = pools({"enable": True, "pools": [POOL]}, before, keep=keep, peaks={} if peaks is None else {"a": peaks})
    assert found == [POOL if expected is None else {**POOL, "peakMillicores": expected}]


def test_what_a_person_configured_stays() -> None:
    own = {**POOL, "peakMillicores": [5] * 24}
    assert pools({"pools": [own, 7, {"x": 1}]}, peaks={"a": FLAT}) == [own, 7, {"x": 1}]
    assert with_outlook({"enable": True}, None, {"a": FLAT}, {}, keep=True) == {"enable": True}


def test_a_grade_becomes_workloads_and_they_stay_until_the_node_is_heard() -> None:
    graded = {**POOL, "leastSensitivity": 0.1}
    assert pools({"pools": [graded]}, workloads={"a": ("D/n/w",)}) == [{**POOL, "workloads": ["D/n/w"]}]
    before = {"pools": [{**POOL, "workloads": ["D/n/old"]}]}
    assert pools({"pools": [graded]}, before) == [{**POOL, "workloads": ["D/n/old"]}]
    assert pools({"pools": [graded]}, before, workloads={"a": ()}) == [{**POOL, "workloads": []}]
    assert pools({"pools": [graded]}) == [{**POOL, "workloads": []}]
