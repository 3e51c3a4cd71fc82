"""All rules together: order, gates, isolation of failures, and what holds for every pod."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.protocol import (
    ANNOTATION_DEVICE_ALLOCATED,
    ANNOTATION_EXTENDED_RESOURCE_SPEC,
    ANNOTATION_RESOURCE_STATUS,
    BATCH_CPU,
    BATCH_MEMORY,
    MID_CPU,
)
from api.qos import QoSClass
from koordlet.hooks.decide import HookRules
from koordlet.hooks.node import NodeFacts
from koordlet.hooks.resources import NOTHING, UNLIMITED, ContainerResources, Mount, knob_values, merged
from koordlet.hooks.rule import Rule
from koordlet.identity.pods import ContainerRole, PodContainer, PodFacts
from tests.koordlet.hooks.facts import container, node, pod, with_cpus

ALL = HookRules({"BECPUManager": True, "CPUNormalization": True, "GPUEnvInject": True, "RDMADeviceInject": True})


class Broken(Rule):
    """A rule that fails."""

    def pod(self, pod: PodFacts, node: NodeFacts) -> ContainerResources:
        raise ZeroDivisionError("oh")


def test_what_was_decided_first_stays() -> None:
    first = ContainerResources(cpu_shares=2, env={"A": "1"}, mounts=(Mount("/a", "/a"),))
    second = ContainerResources(cpu_shares=9, cpu_quota_us=1000, env={"A": "2", "B": "3"}, mounts=(Mount("/b", "/b"),))
    assert merged(first, second) == ContainerResources(
        cpu_shares=2, cpu_quota_us=1000, env={"A": "1", "B": "3"}, mounts=(Mount("/a", "/a"), Mount("/b", "/b"))
    )


def test_a_rule_that_fails_costs_no_other() -> None:
    rules = HookRules()
    rules.rules = {"broken": Broken(), **rules.rules}
    decided = rules.pod(with_cpus("0-1", request=2000), node())
    assert decided.resources.cpu_quota_us == UNLIMITED
    assert decided.problems == {"default/web/broken": "ZeroDivisionError: oh"}


def test_a_gate_that_no_rule_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no feature gate 'Batch'; there are .*BatchResource"):
        HookRules({"Batch": True})


def test_the_reconciler_leaves_strategies_their_knobs() -> None:
    assert {"group_identity", "oom_score", "core_sched", "resctrl"}.isdisjoint(HookRules(only_reconciled=True).rules)


@pytest.mark.parametrize(
    ("v1", "weight"),
    [pytest.param(True, "150", id="v1"), pytest.param(False, "59", id="v2")],
)
def test_knobs(v1: bool, weight: str) -> None:
    found = knob_values(
        ContainerResources(
            cpu_shares=1536, cpu_quota_us=UNLIMITED, cpuset_cpus=frozenset({0, 1, 4}), memory_limit_bytes=7
        ),
        v1=v1,
    )
    assert found == {
        "cpu.weight": weight,
        "cpu.max": "max 100000",
        "cpuset.cpus": "0-1,4",
        "memory.max": "7",
    }


AMOUNTS = st.dictionaries(
    st.sampled_from([BATCH_CPU, BATCH_MEMORY, MID_CPU, "cpu", "memory"]), st.integers(0, 2**63 - 1)
)
TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["0-3", "0-99999999999", "9,9,9", "3-1", ""]).map(lambda cpus: json.dumps({"cpuset": cpus})),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ).map(json.dumps),
)
CONTAINERS = st.builds(
    PodContainer,
    name=st.sampled_from(["a", "b", "c"]),
    role=st.sampled_from(list(ContainerRole)),
    requests=AMOUNTS,
    limits=AMOUNTS,
)
PODS = st.builds(
    PodFacts,
    name=st.just("ns/pod"),
    qos=st.sampled_from(list(QoSClass)),
    priority=st.none() | st.integers(),
    annotations=st.dictionaries(
        st.sampled_from([ANNOTATION_RESOURCE_STATUS, ANNOTATION_EXTENDED_RESOURCE_SPEC, ANNOTATION_DEVICE_ALLOCATED]),
        TEXTS,
    ),
    requests=AMOUNTS,
    limits=AMOUNTS,
    kube_qos=st.sampled_from(["", "Guaranteed", "Burstable", "BestEffort", "odd"]),
    containers=st.lists(CONTAINERS, max_size=3, unique_by=lambda item: item.name).map(tuple),
)


@settings(deadline=None)
@given(of=PODS, ratio=st.floats(), cpus=st.integers(1, 16))
def test_whatever_a_pod_says(of: PodFacts, ratio: float, cpus: int) -> None:
    facts = node(cpus=cpus, pods=(of,), cpu_normalization_ratio=ratio)
    whole = ALL.pod(of, facts).resources
    _check(whole, cpus)
    for one in of.containers:
        part = ALL.container(of, one, facts).resources
        _check(part, cpus)
        if one.role in (ContainerRole.APP, ContainerRole.SIDECAR, ContainerRole.INIT):
            _check_within(part.cpu_quota_us, whole.cpu_quota_us)
            _check_within(part.memory_limit_bytes, whole.memory_limit_bytes)


def _check(found: ContainerResources, cpus: int) -> None:
    assert found.cpu_shares is None or 2 <= found.cpu_shares <= 262_144
    assert found.cpu_quota_us is None or found.cpu_quota_us == UNLIMITED or found.cpu_quota_us >= 1000
    assert found.memory_limit_bytes is None or found.memory_limit_bytes == UNLIMITED or found.memory_limit_bytes > 0
    assert found.cpuset_cpus is None or (found.cpuset_cpus and found.cpuset_cpus <= frozenset(range(cpus)))


def _check_within(part: int | None, whole: int | None) -> None:
    """What cgroup v1 asks of quotas, and sense of limits: a pod has at least what each container has."""
    if part is not None and whole is not None and whole != UNLIMITED:
        assert part != UNLIMITED
        assert part <= whole


@given(milli=st.integers(0, 10**7), ratio=st.integers(100, 500))
def test_a_limit_is_never_no_limit(milli: int, ratio: int) -> None:
    of = pod("BE", container(limits={BATCH_CPU: milli, BATCH_MEMORY: milli}))
    found = HookRules().pod(of, node(cpu_normalization_ratio=ratio / 100)).resources
    assert found.cpu_quota_us is not None
    assert found.cpu_quota_us >= 1000
    assert found.memory_limit_bytes is not None
    assert found.memory_limit_bytes > 0


def test_nothing_is_decided_on_a_plain_node() -> None:
    for qos in QoSClass:
        of = pod(qos)
        assert HookRules().pod(of, node()).resources == NOTHING
        assert HookRules().container(of, of.containers[0], node()).resources == NOTHING
