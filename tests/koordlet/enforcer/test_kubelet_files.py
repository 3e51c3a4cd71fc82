"""Files that the kubelet writes itself stay the kubelet's."""

from dataclasses import replace
from pathlib import Path

import pytest

from api.frame import CgroupKind
from api.intents import Knob
from api.qos import QoSClass
from koordlet.enforcer.kubelet_files import NOT_KNOWN, refusal
from koordlet.enforcer.protected import ProtectedCgroups
from koordlet.host.knobs.direction import Direction
from koordlet.identity.kubelet_policy import NO_KUBELET_POLICY, UNKNOWN_KUBELET_POLICY, KubeletPolicy
from tests.koordlet.enforcer.hosts import FakeHost, infos, outcomes, want

BEST_EFFORT = "/kubepods.slice/kubepods-besteffort.slice"
BURSTABLE = "/kubepods/burstable"
UID = "12345678-1234-1234-1234-123456789012"
STATIC = KubeletPolicy(cpu_manager_static=True, memory_manager_static=True)
MEMORY_QOS = KubeletPolicy(memory_qos=True)
POLICIES = {
    "plain": NO_KUBELET_POLICY,
    "static": STATIC,
    "memory-qos": MEMORY_QOS,
    "reserving": KubeletPolicy(qos_reserved=True),
}
ANY = "may be written"


@pytest.mark.parametrize(
    ("knob", "target", "direction", "policy", "told"),
    [
        (Knob.CPU_MAX, BEST_EFFORT, Direction.TIGHTER, "plain", ANY),
        (Knob.MEMORY_HIGH, BEST_EFFORT, Direction.TIGHTER, "memory-qos", ANY),
        (Knob.CPUSET_CPUS, BEST_EFFORT, Direction.TIGHTER, "plain", ANY),
        (Knob.CPUSET_CPUS, BEST_EFFORT, Direction.TIGHTER, "static", "static CPU manager"),
        (Knob.CPUSET_CPUS, BEST_EFFORT, Direction.WIDER, "static", "static CPU manager"),
        (Knob.CPUSET_MEMS, BEST_EFFORT, Direction.TIGHTER, "static", "static memory manager"),
        (Knob.CPU_IDLE, BEST_EFFORT, Direction.TIGHTER, "plain", "shares"),
        (Knob.CPU_IDLE, BEST_EFFORT, Direction.WIDER, "plain", "shares"),
        (Knob.CPU_WEIGHT, BEST_EFFORT, Direction.WIDER, "plain", "shares"),
        (Knob.CPU_WEIGHT, BURSTABLE, Direction.TIGHTER, "plain", "shares"),
        (Knob.FREEZE, BEST_EFFORT, Direction.TIGHTER, "plain", "kubelet"),
        (Knob.CPU_MAX, BURSTABLE, Direction.TIGHTER, "plain", "more than best-effort"),
        (Knob.MEMORY_MIN, BURSTABLE, Direction.WIDER, "plain", ANY),
        (Knob.MEMORY_MIN, BURSTABLE, Direction.WIDER, "memory-qos", "MemoryQoS"),
        (Knob.MEMORY_LOW, BEST_EFFORT, Direction.WIDER, "memory-qos", "MemoryQoS"),
        (Knob.MEMORY_MAX, BEST_EFFORT, Direction.TIGHTER, "plain", ANY),
        (Knob.MEMORY_MAX, BEST_EFFORT, Direction.TIGHTER, "reserving", "qosReserved"),
    ],
)
def test_directories_of_the_kubelet(knob: Knob, target: str, direction: Direction, policy: str, told: str) -> None:
    found = refusal(knob, target, CgroupKind.KUBEPODS, direction, POLICIES[policy], "")
    assert (found or ANY).count(told) == 1


@pytest.mark.parametrize("below", ["", "/container"])
def test_a_pod_with_cpus_of_its_own_gets_no_list_of_ours(below: str) -> None:
    policy = KubeletPolicy(exclusive_pods=frozenset({UID}))
    bare = ProtectedCgroups((), {}, frozenset(), "", kubelet=policy)
    pod = f"{BURSTABLE}/pod{UID}{below}"
    assert "CPU manager" in bare.forbids(Knob.CPUSET_CPUS, pod, Direction.TIGHTER)
    assert "CPU manager" in bare.forbids(Knob.CPUSET_CPUS, pod, Direction.WIDER, protocol_state=True)
    assert bare.forbids(Knob.CPU_MAX, pod, Direction.TIGHTER) == ""
    assert bare.forbids(Knob.CPUSET_CPUS, pod.replace("12345678", "99999999"), Direction.TIGHTER) == ""


def test_memory_protection_of_pods_is_the_kubelets_where_it_writes_it() -> None:
    pod = f"{BURSTABLE}/pod{UID}"
    owned = ProtectedCgroups((), {}, frozenset(), "", kubelet=MEMORY_QOS)
    assert "MemoryQoS" in owned.forbids(Knob.MEMORY_MIN, pod, Direction.WIDER, protocol_state=True)
    assert ProtectedCgroups((), {}, frozenset(), "").forbids(Knob.MEMORY_MIN, pod, Direction.WIDER) == ""


def test_a_pod_that_another_layout_names_is_known_by_its_uid() -> None:
    policy = KubeletPolicy(exclusive_pods=frozenset({UID}))
    named = ProtectedCgroups((), {}, frozenset(), "", pod_uids={"/odd/place": UID}, kubelet=policy)
    assert "CPU manager" in named.forbids(Knob.CPUSET_CPUS, "/odd/place", Direction.TIGHTER)


@pytest.mark.parametrize(
    ("knob", "target", "kind", "uid", "is_certain"),
    [
        (Knob.CPUSET_CPUS, BEST_EFFORT, CgroupKind.KUBEPODS, "", False),
        (Knob.CPUSET_MEMS, BEST_EFFORT, CgroupKind.KUBEPODS, "", False),
        (Knob.MEMORY_MAX, BEST_EFFORT, CgroupKind.KUBEPODS, "", False),
        (Knob.MEMORY_LOW, BURSTABLE, CgroupKind.KUBEPODS, "", False),
        (Knob.MEMORY_MIN, f"{BURSTABLE}/pod{UID}", CgroupKind.POD, UID, False),
        (Knob.CPU_IDLE, BEST_EFFORT, CgroupKind.KUBEPODS, "", True),
        (Knob.CPUSET_CPUS, BURSTABLE, CgroupKind.KUBEPODS, "", True),
        (Knob.CPU_MAX, BURSTABLE, CgroupKind.KUBEPODS, "", True),
    ],
)
def test_what_a_kubelet_might_write_that_has_not_told_is_left_to_it(
    knob: Knob, target: str, kind: CgroupKind, uid: str, is_certain: bool
) -> None:
    found = refusal(knob, target, kind, Direction.TIGHTER, UNKNOWN_KUBELET_POLICY, uid)
    assert found
    assert found.endswith(NOT_KNOWN) == (not is_certain)
    assert refusal(Knob.CPU_MAX, BEST_EFFORT, CgroupKind.KUBEPODS, Direction.TIGHTER, UNKNOWN_KUBELET_POLICY, "") == ""


def test_what_is_in_effect_stays_until_the_kubelet_has_told(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.make("/kubepods/burstable/podx")
    state = want(Knob.MEMORY_MIN, "4096", "/kubepods/burstable/podx", strategy="qos", protocol_state=True)
    pods = infos(**{"kubepods/burstable/podx": QoSClass.LS})
    marked = [replace(info, pod_uid=UID) for info in pods]
    first = host.enforcer()
    first.step([state], marked, host.later(1))
    first.close(host.later(1))
    second = host.enforcer()
    for _ in range(3):
        second.step([state], marked, host.later(1), kubelet=UNKNOWN_KUBELET_POLICY)
        assert host.text(state.target, "memory.min") == "4096"
    events = second.step([state], marked, host.later(1), kubelet=MEMORY_QOS)
    assert host.text(state.target, "memory.min") == "0", outcomes(events)
