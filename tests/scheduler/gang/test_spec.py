"""Sources of a gang's parameters, and their defaults."""

import pytest

from scheduler.gang.spec import (
    GangDefaults,
    GangError,
    GangSpec,
    MatchPolicy,
    gang_id,
    spec_of_pod,
    spec_of_pod_group,
    workload_group_id,
)

G = "gang.scheduling.koordinator.sh/"
PG = "pod-group.scheduling.sigs.k8s.io"


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        pytest.param({}, {}, None, id="no gang"),
        pytest.param({}, {G + "name": "a"}, "ns/a", id="annotation"),
        pytest.param({PG + "/name": "l"}, {G + "name": "a"}, "ns/l", id="light label over annotation"),
        pytest.param({PG: "p", PG + "/name": "l"}, {G + "name": "a"}, "ns/p", id="PodGroup over both"),
    ],
)
def test_gang_id(labels: dict[str, str], annotations: dict[str, str], expected: str | None) -> None:
    assert gang_id("ns", labels, annotations) == expected


def test_an_annotation_does_not_name_a_group_of_workloads() -> None:
    keys = {G + "name": "w@scheduling.k8s.io", G + "min-available": "1"}
    gang = gang_id("ns", {}, keys)
    assert gang not in (None, workload_group_id("ns", {"podGroupName": "w"}))
    with pytest.raises(GangError, match="is no name of a gang"):
        spec_of_pod(gang or "", {}, keys)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({}, GangSpec("ns/a", 3, 3, group=("ns/a",)), id="defaults"),
        pytest.param({"total-number": "5"}, GangSpec("ns/a", 3, 5, group=("ns/a",)), id="total"),
        pytest.param({"total-number": "2"}, GangSpec("ns/a", 3, 3, group=("ns/a",)), id="total below minimum"),
        pytest.param({"mode": "NonStrict"}, GangSpec("ns/a", 3, 3, strict=False, group=("ns/a",)), id="loose"),
        pytest.param({"mode": "Sloppy"}, GangSpec("ns/a", 3, 3, group=("ns/a",)), id="unknown mode is strict"),
        pytest.param(
            {"waiting-time": "25m"},
            GangSpec("ns/a", 3, 3, wait_seconds=1500, group=("ns/a",)),
            id="long wait",
        ),
        pytest.param({"waiting-time": "-1s"}, GangSpec("ns/a", 3, 3, group=("ns/a",)), id="negative wait"),
        pytest.param({"waiting-time": "soon"}, GangSpec("ns/a", 3, 3, group=("ns/a",)), id="no duration"),
        pytest.param({"groups": '["other/b","ns/a"]'}, GangSpec("ns/a", 3, 3, group=("ns/a", "other/b")), id="groups"),
        pytest.param(
            {"match-policy": "only-waiting"},
            GangSpec("ns/a", 3, 3, group=("ns/a",), policy=MatchPolicy.ONLY_WAITING),
            id="policy",
        ),
        pytest.param({"match-policy": "never"}, GangSpec("ns/a", 3, 3, group=("ns/a",)), id="unknown policy"),
    ],
)
def test_spec_of_pod(annotations: dict[str, str], expected: GangSpec) -> None:
    keys = {G + name: value for name, value in annotations.items()} | {G + "min-available": "3"}
    assert spec_of_pod("ns/a", {}, keys) == expected


def test_the_light_label_gives_the_minimum() -> None:
    labels = {PG + "/min-available": "2", PG + "/match-policy": "waiting-and-running"}
    spec = spec_of_pod("ns/a", labels, {G + "min-available": "9"})
    assert (spec.minimum, spec.policy) == (2, MatchPolicy.WAITING_AND_RUNNING)


def test_a_pod_group_with_defaults_from_the_arguments() -> None:
    defaults = GangDefaults(wait_seconds=30, policy=MatchPolicy.ONLY_WAITING)
    spec = spec_of_pod_group("ns/a", 4, 0, labels={}, annotations={}, defaults=defaults)
    assert spec == GangSpec("ns/a", 4, 4, 30, group=("ns/a",), policy=MatchPolicy.ONLY_WAITING)
    assert spec_of_pod_group("ns/a", 4, 1500, labels={}, annotations={}).wait_seconds == 1500


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        pytest.param({}, "neither a PodGroup", id="no minimum"),
        pytest.param({"min-available": "three"}, "min-available is 'three'", id="no number"),
        pytest.param({"min-available": "3", "groups": "a,b"}, "groups is 'a,b'", id="groups are no list"),
    ],
)
def test_errors_name_gang_key_and_value(annotations: dict[str, str], message: str) -> None:
    keys = {G + name: value for name, value in annotations.items()}
    with pytest.raises(GangError, match=f"gang ns/a: .*{message}"):
        spec_of_pod("ns/a", {}, keys)
