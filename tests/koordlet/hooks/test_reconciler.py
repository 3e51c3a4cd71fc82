"""The reconciler: intents for the cgroups of pods and for no other."""

from dataclasses import replace

import pytest

from api.frame import CgroupInfo, CgroupKind
from api.intents import Knob
from api.protocol import ANNOTATION_EXTENDED_RESOURCE_SPEC, BATCH_CPU, BATCH_MEMORY
from koordlet.hooks.decide import HookRules
from koordlet.hooks.reconciler import STRATEGY, Reconciler
from koordlet.identity.pods import ContainerRole, PodContainer, PodFacts, PodTable
from tests.koordlet.hooks.facts import GIB, container, node, pod, with_cpus

POD = "/kubepods/besteffort/podu1"
AMOUNTS = {BATCH_CPU: 1000, BATCH_MEMORY: GIB}
BATCH = pod("BE", container(id="c1", requests=AMOUNTS, limits=AMOUNTS), PodContainer("s", "c0", ContainerRole.SANDBOX))
POD_INFO = CgroupInfo(2, POD, "web", kind=CgroupKind.POD, pod_uid="u1")
CONTAINER_INFO = CgroupInfo(3, f"{POD}/c1", "main", kind=CgroupKind.CONTAINER, pod_uid="u1", container_id="c1")
SANDBOX_INFO = CgroupInfo(4, f"{POD}/c0", "s", kind=CgroupKind.CONTAINER, pod_uid="u1", container_id="c0")
FACTS = node()


def reconciler(rules: HookRules | None = None) -> Reconciler:
    return Reconciler(rules or HookRules(only_reconciled=True), lambda _pods: FACTS, v1=True)


def found(of: PodFacts, *cgroups: CgroupInfo) -> dict[tuple[str, Knob], str]:
    settings = reconciler().settings(PodTable([of], generation=1), cgroups)
    assert all(setting.protocol_state and setting.strategy == STRATEGY for setting in settings)
    return {(setting.target, setting.knob): setting.value for setting in settings}


def test_pod_and_container_get_what_the_pod_asks_for() -> None:
    expected = {Knob.CPU_WEIGHT: "100", Knob.CPU_MAX: "100000 100000", Knob.MEMORY_MAX: str(GIB)}
    assert found(BATCH, POD_INFO, CONTAINER_INFO, SANDBOX_INFO) == {
        (path, knob): value for path in (POD, f"{POD}/c1") for knob, value in expected.items()
    }


@pytest.mark.parametrize(
    "info",
    [
        pytest.param(replace(CONTAINER_INFO, container_id="c9"), id="unknown-container"),
        pytest.param(replace(CONTAINER_INFO, pod_uid="u9"), id="container-of-another-pod"),
        pytest.param(replace(CONTAINER_INFO, path="/user.slice/c1"), id="container-elsewhere"),
        pytest.param(replace(POD_INFO, pod_uid="u9"), id="unknown-pod"),
        pytest.param(replace(POD_INFO, path="/user.slice/podu1"), id="pod-elsewhere"),
        pytest.param(replace(POD_INFO, kind=CgroupKind.PLAIN), id="no-pod"),
    ],
)
def test_a_directory_that_claims_to_be_a_pods_gets_nothing(info: CgroupInfo) -> None:
    assert found(replace(BATCH, cgroup_path=POD), info) == {}


def test_plain_pods_get_nothing() -> None:
    assert found(pod("LS", container(id="c1", limits={"cpu": 1000})), POD_INFO, CONTAINER_INFO) == {}


def test_decisions_are_kept_while_nothing_changes() -> None:
    subject, table, cgroups = reconciler(), PodTable([BATCH], generation=1), (POD_INFO,)
    first = subject.settings(table, cgroups)
    assert subject.settings(table, cgroups) is first
    assert subject.settings(PodTable([], generation=2), cgroups) == ()


def test_problems_are_named_and_cost_only_their_pod() -> None:
    torn = replace(with_cpus("x"), name="ns/torn", uid="u2", qos=BATCH.qos, kube_qos="BestEffort")
    torn = replace(torn, annotations={ANNOTATION_EXTENDED_RESOURCE_SPEC: "{"})
    subject = reconciler()
    info = CgroupInfo(5, "/kubepods/podu2", "torn", kind=CgroupKind.POD, pod_uid="u2")
    settings = subject.settings(PodTable([torn, BATCH], generation=1), (info, POD_INFO))
    assert {setting.target for setting in settings} == {POD}
    assert list(subject.problems) == ["ns/torn/batch_resource"]
