"""Verdicts in a report as the scheduler reads them."""

import msgspec
import pytest

from api.crds import NodeMetric
from api.kube.interference import WireVerdict
from api.kube.meta import ObjectMeta, OwnerReference
from api.kube.objects import Pod
from api.verdicts import (
    HYPERVISOR,
    KERNEL,
    OWN_LIMIT,
    OWN_PLACEMENT,
    OWN_QUOTA,
    OWN_THREADS,
    Culprit,
    How,
    Verdict,
    is_self_inflicted,
)
from koordlet.identity.pods import PodTable
from koordlet.kube.verdict_entries import MAX_ENTRIES, by_victim, entries_of, extension
from koordlet.kubelet.pod_documents import NodePod
from koordlet.kubelet.pod_facts import describe
from scheduler.interference.verdicts import NodeVerdict as Read
from scheduler.interference.verdicts import from_metric
from tests.verdicts import make_verdict

WEB, BATCH, STATIC = (f"{digit * 8}-0000-4000-8000-000000000000" for digit in "123")


def cgroup(uid: str, container: str = "a") -> str:
    return f"/kubepods/burstable/pod{uid}/{container * 64}"


def pod(name: str, uid: str, *, owner: OwnerReference | None = None, **annotations: str) -> Pod:
    labels = {"pod-template-hash": "7d4"} if owner else {}
    owners = [owner] if owner else []
    meta = ObjectMeta(
        name=name, namespace="shop", uid=uid, labels=labels, annotations=annotations, owner_references=owners
    )
    return Pod(metadata=meta)


def table(*pods: Pod) -> PodTable:
    documents = (msgspec.convert(msgspec.to_builtins(each), NodePod) for each in pods)
    return PodTable((describe(each, by_kubelet=False).facts for each in documents), generation=1)


@pytest.fixture
def pods() -> PodTable:
    owner = OwnerReference("apps/v1", "ReplicaSet", "web-7d4", "u", True)
    return table(pod("web-1", WEB, owner=owner), pod("batch", BATCH))


def read(entries: tuple[WireVerdict, ...], *reported: str) -> tuple[Read, ...]:
    """What the scheduler makes of these entries in a report with these pods."""
    stated = by_victim(entries, reported, 1_700_000_090.0)
    listed = []
    for name in reported:
        namespace, _, plain = name.partition("/")
        listed.append({"namespace": namespace, "name": plain, "extensions": {"interference": extension(stated, name)}})
    status = {"podsMetric": listed, "extensions": {"interference": extension(stated, "")}}
    return from_metric(msgspec.convert({"status": status}, NodeMetric))


def by(*culprits: str, victim: str = cgroup(WEB), **given: object) -> Verdict:
    named = tuple(Culprit(path, 1 / len(culprits), How.DIRECT) for path in culprits)
    return make_verdict(victim, culprits=named, **given)  # type: ignore[arg-type]


def with_cause(verdict: Verdict, resource: str, cause: str) -> Verdict:
    return msgspec.structs.replace(verdict, resource=resource, cause=cause)


def test_the_scheduler_reads_what_the_agent_writes(pods: PodTable) -> None:
    open_verdicts = [
        by(cgroup(BATCH), KERNEL, lost=0.4),
        by("/system.slice/backup.service", resource="blockio", lost=0.9),
        by(cgroup(WEB), victim=cgroup(BATCH), resource="memory", lost=0.2),
    ]
    assert read(entries_of(open_verdicts, pods), "shop/web-1") == (
        Read("block-io", "shop/web-1", ("/system.slice/backup.service",), 0.9, 1_700_000_090.0),
        Read("cpu", "shop/web-1", ("shop/batch",), 0.4, 1_700_000_090.0),
        Read("memory", "shop/batch", ("Deployment/shop/web",), 0.2, 1_700_000_090.0),
    ), "a victim without measured usage is stated too"


def test_what_the_hypervisor_takes_is_no_interference_of_pods(pods: PodTable) -> None:
    """Profiles would learn it of all neighbours, and the scheduler avoid a node for what no pod does there."""
    assert entries_of([with_cause(by(HYPERVISOR, lost=0.5), "cpu", "steal")], pods) == ()
    (entry,) = entries_of([with_cause(by(HYPERVISOR, lost=0.5), "cpu", "steal"), by(cgroup(BATCH), lost=0.4)], pods)
    assert (entry.culprits, entry.shares, entry.lost_seconds_per_second) == (["shop/batch"], [1.0], 0.4)


@pytest.mark.parametrize(
    ("resource", "cause", "expected"),
    [
        ("cpu", "contention", "cpu"),
        ("cpu", "smt_sibling", "cpu-smt"),
        ("cpu", "irq", "kernel"),
        ("cpu", "cpi", "cache"),
        ("cpu", "cpi2", "cache"),
        ("memory", "bandwidth", "memory-bandwidth"),
        ("service", "turnaround", None),
        ("memory", "reclaim", "memory"),
        ("memory", "compaction", "memory"),
        ("blockio", "delay", "block-io"),
        ("network", "delay", "network"),
        ("network", "retransmit", "network"),
        ("cache", "pressure", "cache"),
        ("cpu", "own_quota", None),
        ("cpu", "own_threads", None),
        ("cpu", "ancestor_quota", None),
        ("memory", "own_limit", None),
        ("memory", "ancestor_limit", None),
        ("blockio", "limit", None),
        ("pressure", "stall", None),
    ],
)
def test_only_what_others_do_is_stated_and_in_the_schedulers_words(
    pods: PodTable, resource: str, cause: str, expected: str | None
) -> None:
    entries = entries_of([with_cause(by(cgroup(BATCH)), resource, cause)], pods)
    found = read(entries)
    assert [each.resource for each in found] == ([expected] if expected else [])


def test_own_doing_is_the_cause_of_those_symptoms_that_blame_the_victim_or_its_limits() -> None:
    from detector.registry import discover_symptoms

    for name, symptom in discover_symptoms().items():
        own = symptom.blame.named in (OWN_QUOTA, OWN_LIMIT, OWN_THREADS, OWN_PLACEMENT) or bool(
            symptom.blame.ancestor_columns
        )
        assert is_self_inflicted(with_cause(by(cgroup(BATCH)), symptom.resource, symptom.cause)) == own, name


@pytest.mark.parametrize(
    ("resource", "expected"), [pytest.param("memory", "memory", id="known"), pytest.param("gpu", None, id="unknown")]
)
def test_a_cause_of_another_distribution_is_stated_under_its_resource(
    pods: PodTable, resource: str, expected: str | None
) -> None:
    entries = entries_of([with_cause(by(cgroup(BATCH)), resource, "of_a_plugin")], pods)
    assert [each.resource for each in entries] == ([expected] if expected else [])


def test_containers_of_a_pod_are_one_victim_and_never_each_others_culprits(pods: PodTable) -> None:
    open_verdicts = [
        by(cgroup(WEB, "b"), cgroup(BATCH), victim=cgroup(WEB, "a"), lost=0.1),
        by(OWN_QUOTA, victim=cgroup(WEB, "b"), lost=0.2),
    ]
    (entry,) = entries_of(open_verdicts, pods)
    assert (entry.victim, entry.culprits, entry.lost_seconds_per_second) == ("shop/web-1", ["shop/batch"], 0.3)


def test_a_full_node_states_what_costs_most(pods: PodTable) -> None:
    open_verdicts = [by("/batch", victim=f"/plain/{number}", lost=number / 100) for number in range(1, 200)]
    entries = entries_of(open_verdicts, pods)
    assert len(entries) == MAX_ENTRIES
    assert (entries[0].victim, entries[-1].victim) == ("/plain/199", f"/plain/{200 - MAX_ENTRIES}")
