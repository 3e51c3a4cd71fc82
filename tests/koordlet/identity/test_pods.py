"""Protection of pods by annotation."""

import pytest

from koordlet.identity.pods import (
    ANNOTATION_PROTECTED,
    NO_PODS,
    PodContainer,
    PodFacts,
    PodTable,
    annotated,
    no_pod_facts,
)
from tests.frames import cgroup_info

UID = "12345678-1234-1234-1234-123456789012"
POD = f"/kubepods/besteffort/pod{UID}"
CGROUPS = [cgroup_info(number, path) for number, path in enumerate(("/", POD, f"{POD}/{'a' * 64}", "/batch"))]


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({ANNOTATION_PROTECTED: "true"}, {POD}, id="true"),
        pytest.param({ANNOTATION_PROTECTED: "false"}, set(), id="false"),
        pytest.param({}, set(), id="absent"),
    ],
)
def test_the_pod_itself_is_named_and_only_if_it_says_so(annotations: dict[str, str], expected: set[str]) -> None:
    assert annotated(CGROUPS, {UID: PodFacts("shop/web", annotations=annotations)}.get) == expected


def test_who_is_not_known_is_not_annotated() -> None:
    assert annotated(CGROUPS, {}.get) == frozenset()
    assert annotated(CGROUPS, no_pod_facts) == frozenset()


def test_a_table_finds_pods_by_either_uid_and_by_every_container_id() -> None:
    container = PodContainer("web", "b" * 64, earlier_ids=("c" * 64,))
    pod = PodFacts("kube-system/proxy", uid=UID, cgroup_uid="f" * 32, containers=(container,))
    table = PodTable([pod], generation=3)
    assert table.of_uid(UID) is table.of_uid("f" * 32) is pod
    assert table.of_container("b" * 64) == table.of_container("c" * 64) == (pod, container)
    assert table.of_uid("") is None
    assert table.of_container("") is None
    assert (len(table), len(NO_PODS), pod.namespace) == (1, 0, "kube-system")


def test_a_table_finds_pods_and_containers_by_the_place_of_their_cgroups() -> None:
    container = PodContainer("web", "b" * 64, cgroup_path=f"{POD}/{'b' * 64}")
    pod = PodFacts("shop/web", uid=UID, cgroup_path=POD, containers=(container,))
    table = PodTable([pod], generation=1)
    assert table.of_path(POD) == (pod, None)
    assert table.of_path(f"{POD}/{'b' * 64}") == (pod, container)
    assert table.of_path(f"/user.slice{POD}") is None
    assert table.of_path("") is None
