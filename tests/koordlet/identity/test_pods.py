"""Protection of pods by annotation."""

import pytest

from koordlet.identity.pods import ANNOTATION_PROTECTED, PodFacts, annotated, no_pod_facts
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
