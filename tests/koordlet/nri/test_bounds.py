"""Bounds of a container before it exists."""

import pytest

from api.intents import Knob
from koordlet.hooks.resources import UNLIMITED, ContainerResources
from koordlet.nri.bounds import NO_SUPPRESSION, PodBounds, Suppression, bounded, suppression

POD = "/kubepods/besteffort/podu1"
CPUS = Knob.CPUSET_CPUS


@pytest.mark.parametrize(
    ("actions", "cpus", "by_neighbours"),
    [
        pytest.param({}, None, False, id="nothing"),
        pytest.param({"/kubepods/besteffort/podx/c": {CPUS: "0-1"}}, {0, 1}, True, id="neighbour"),
        pytest.param(
            {f"/kubepods/besteffort/podx/{name}": {CPUS: cpus} for name, cpus in (("a", "0"), ("b", "1"), ("c", "1"))},
            {1},
            True,
            id="most-of-them",
        ),
        pytest.param(
            {"/kubepods/besteffort": {CPUS: "2"}, "/kubepods/besteffort/x": {CPUS: "3"}}, {2}, False, id="above"
        ),
        pytest.param({"/kubepods/besteffort": {CPUS: "2"}, POD: {CPUS: "3"}}, {3}, False, id="nearest"),
        pytest.param({"/kubepods/burstable/podx/c": {CPUS: "0-1"}}, None, False, id="another-directory"),
        pytest.param({"/kubepods/besteffort/podx/c": {Knob.CPU_MAX: "1000 100000"}}, None, False, id="another-knob"),
        pytest.param({"/kubepods/besteffort/podx/c": {CPUS: "torn-"}}, None, False, id="unreadable"),
    ],
)
def test_a_container_starts_as_its_neighbours_are(
    actions: dict[str, dict[Knob, str]], cpus: set[int] | None, by_neighbours: bool
) -> None:
    found = suppression(actions, POD)
    assert (found.cpus, found.by_neighbours) == (cpus, by_neighbours)


@pytest.mark.parametrize(("own", "expected"), [(None, 900), (1000, 1000), (-5, 900)])
def test_a_container_is_killed_no_later_than_its_neighbours(own: int | None, expected: int) -> None:
    found = suppression({"/kubepods/besteffort": {Knob.OOM_SCORE_ADJ: "900"}}, POD)
    assert bounded(ContainerResources(oom_score_adj=own), PodBounds(), found, v1=True).oom_score_adj == expected


@pytest.mark.parametrize(
    ("cpus", "has", "suppressed", "expected"),
    [
        pytest.param({0, 1, 2}, {1, 2, 3}, None, {1, 2}, id="within-the-pod"),
        pytest.param({0, 1}, {2, 3}, None, None, id="nothing-in-common"),
        pytest.param(None, {0, 1, 2, 3}, {1}, {1}, id="suppressed"),
        pytest.param({1, 2}, {0, 1, 2, 3}, {2, 3}, {2}, id="both"),
        pytest.param({1}, {0, 1, 2, 3}, {2}, {2}, id="suppression-elsewhere"),
        pytest.param({0, 1}, None, None, {0, 1}, id="pod-not-known"),
        pytest.param(None, {1}, None, None, id="nothing-asked"),
    ],
)
def test_cpus(
    cpus: set[int] | None, has: set[int] | None, suppressed: set[int] | None, expected: set[int] | None
) -> None:
    asked = ContainerResources(cpuset_cpus=frozenset(cpus) if cpus else None)
    bounds = PodBounds(cpus=frozenset(has) if has else None)
    found = bounded(asked, bounds, Suppression(frozenset(suppressed) if suppressed else None), v1=True)
    assert found.cpuset_cpus == expected


@pytest.mark.parametrize(
    ("quota", "has", "v1", "expected"),
    [
        pytest.param(200_000, 100_000, True, None, id="refused-by-v1"),
        pytest.param(200_000, 100_000, False, 200_000, id="allowed-by-v2"),
        pytest.param(UNLIMITED, 100_000, True, UNLIMITED, id="no-limit-is-allowed"),
        pytest.param(200_000, None, True, 200_000, id="pod-without-limit"),
        pytest.param(100_000, 100_000, True, 100_000, id="as-much-as-the-pod"),
        pytest.param(None, 100_000, True, None, id="nothing-asked"),
    ],
)
def test_quotas(quota: int | None, has: int | None, v1: bool, expected: int | None) -> None:
    found = bounded(ContainerResources(cpu_quota_us=quota), PodBounds(quota_us=has), NO_SUPPRESSION, v1=v1)
    assert found.cpu_quota_us == expected
