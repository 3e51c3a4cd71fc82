"""Requests of pods and containers as columns."""

import numpy as np

from api.frame import CgroupInfo, CgroupKind
from koordlet.control.pod_requests import PodRequests
from koordlet.identity.pods import PodContainer, PodFacts, no_pod_facts

UID = "12345678-1234-1234-1234-123456789012"
CGROUPS = (
    CgroupInfo(1, "/", "/"),
    CgroupInfo(2, "/pod", "pod", kind=CgroupKind.POD, pod_uid=UID),
    CgroupInfo(3, "/pod/web", "web", kind=CgroupKind.CONTAINER, pod_uid=UID, container_id="aa"),
    CgroupInfo(4, "/pod/idle", "idle", kind=CgroupKind.CONTAINER, pod_uid=UID, container_id="bb"),
    CgroupInfo(5, "/other", "other", kind=CgroupKind.POD, pod_uid="unknown"),
)


def test_amounts_of_a_pod_and_its_containers() -> None:
    facts = PodFacts(
        "shop/web",
        requests={"cpu": 1500, "memory": 1 << 30},
        containers=(PodContainer("web", "aa", requests={"cpu": 1500, "memory": 1 << 30}), PodContainer("idle", "bb")),
    )
    found = PodRequests({UID: facts}.get).columns(CGROUPS)
    assert found is not None
    cores, memory = found
    assert np.array_equal(cores, [np.nan, 1.5, 1.5, np.nan, np.nan], equal_nan=True)
    assert np.array_equal(memory, [np.nan, 1 << 30, 1 << 30, np.nan, np.nan], equal_nan=True)


def test_what_only_its_author_wrote_is_not_believed() -> None:
    facts = PodFacts("shop/web", requests={"cpu": 64_000}, spec_known=False)
    found = PodRequests({UID: facts}.get).columns(CGROUPS)
    assert found is not None
    assert np.isnan(found[0]).all()
    assert PodRequests(no_pod_facts).columns(CGROUPS) is None


def test_a_resized_pod_has_its_new_amounts_and_one_that_ended_none() -> None:
    facts = {UID: PodFacts("shop/web", requests={"cpu": 1500})}
    requests = PodRequests(facts.get)
    for millicores, cores in ((1500, 1.5), (250, 0.25)):
        facts[UID] = PodFacts("shop/web", requests={"cpu": millicores})
        found = requests.columns(CGROUPS)
        assert found is not None
        assert found[0][1] == cores
    facts.clear()
    found = requests.columns(CGROUPS)
    assert found is not None
    assert np.isnan(found[0]).all()
