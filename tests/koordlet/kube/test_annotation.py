"""The annotation as the scheduler reads it, and when it is written."""

import pytest

from api.kube.meta import ObjectMeta, OwnerReference
from api.kube.objects import Pod
from api.verdicts import KERNEL, OWN_LIMIT, OWN_QUOTA, OWN_THREADS, Culprit, How, Verdict, is_self_inflicted
from koordlet.kube.annotation import (
    MAX_ENTRIES,
    MIN_WRITE_SECONDS,
    AnnotationSchedule,
    annotation_text,
    entries_of,
)
from koordlet.kube.pods import CONFIG_HASH, PodIndex
from scheduler.interference.verdicts import NodeVerdict as Read
from scheduler.interference.verdicts import from_annotation
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


@pytest.fixture
def pods() -> PodIndex:
    book = PodIndex()
    book.change(None, pod("web-1", WEB, owner=OwnerReference("apps/v1", "ReplicaSet", "web-7d4", "u", True)))
    book.change(None, pod("batch", BATCH))
    return book


def by(*culprits: str, victim: str = cgroup(WEB), **given: object) -> Verdict:
    named = tuple(Culprit(path, 1 / len(culprits), How.DIRECT) for path in culprits)
    return make_verdict(victim, culprits=named, **given)  # type: ignore[arg-type]


def with_cause(verdict: Verdict, resource: str, cause: str) -> Verdict:
    import msgspec

    return msgspec.structs.replace(verdict, resource=resource, cause=cause)


def test_the_scheduler_reads_what_the_agent_writes(pods: PodIndex) -> None:
    open_verdicts = [
        by(cgroup(BATCH), KERNEL, lost=0.4),
        by("/system.slice/backup.service", resource="blockio", lost=0.9),
        by(cgroup(WEB), victim=cgroup(BATCH), resource="memory", lost=0.2),
    ]
    text = annotation_text(entries_of(open_verdicts, pods), 1_700_000_090.0)
    assert from_annotation(text) == (
        Read("block-io", "shop/web-1", ("/system.slice/backup.service",), 0.9, 1_700_000_090.0),
        Read("cpu", "shop/web-1", ("shop/batch",), 0.4, 1_700_000_090.0),
        Read("memory", "shop/batch", ("Deployment/shop/web",), 0.2, 1_700_000_090.0),
    )


@pytest.mark.parametrize(
    ("resource", "cause", "read"),
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
    pods: PodIndex, resource: str, cause: str, read: str | None
) -> None:
    entries = entries_of([with_cause(by(cgroup(BATCH)), resource, cause)], pods)
    found = from_annotation(annotation_text(entries, 1e9))
    assert [each.resource for each in found] == ([read] if read else [])


def test_own_doing_is_the_cause_of_those_symptoms_that_blame_the_victim_or_its_limits() -> None:
    from detector.registry import discover_symptoms

    for name, symptom in discover_symptoms().items():
        own = symptom.blame.named in (OWN_QUOTA, OWN_LIMIT, OWN_THREADS) or bool(symptom.blame.ancestor_columns)
        assert is_self_inflicted(with_cause(by(cgroup(BATCH)), symptom.resource, symptom.cause)) == own, name


@pytest.mark.parametrize(
    ("resource", "read"), [pytest.param("memory", "memory", id="known"), pytest.param("gpu", None, id="unknown")]
)
def test_a_cause_of_another_distribution_is_stated_under_its_resource(
    pods: PodIndex, resource: str, read: str | None
) -> None:
    entries = entries_of([with_cause(by(cgroup(BATCH)), resource, "of_a_plugin")], pods)
    assert [each.resource for each in entries] == ([read] if read else [])


def test_containers_of_a_pod_are_one_victim_and_never_each_others_culprits(pods: PodIndex) -> None:
    open_verdicts = [
        by(cgroup(WEB, "b"), cgroup(BATCH), victim=cgroup(WEB, "a"), lost=0.1),
        by(OWN_QUOTA, victim=cgroup(WEB, "b"), lost=0.2),
    ]
    (entry,) = entries_of(open_verdicts, pods)
    assert (entry.victim, entry.culprits, entry.lost_seconds_per_second) == ("shop/web-1", ["shop/batch"], 0.3)


def test_a_full_node_states_what_costs_most(pods: PodIndex) -> None:
    open_verdicts = [by("/batch", victim=f"/plain/{number}", lost=number / 100) for number in range(1, 200)]
    entries = entries_of(open_verdicts, pods)
    assert len(entries) == MAX_ENTRIES
    assert (entries[0].victim, entries[-1].victim) == ("/plain/199", f"/plain/{200 - MAX_ENTRIES}")


def test_a_static_pod_is_known_by_the_uid_of_its_cgroups() -> None:
    book = PodIndex()
    mirror = pod("etcd-n1", "9" * 36, **{CONFIG_HASH: "ab" * 16})
    book.change(None, mirror)
    assert book.name_of(f"/kubepods/pod{'ab' * 16}") == "shop/etcd-n1"
    assert book.name_of(f"/kubepods/pod{'ab' * 16}/{'c' * 64}/made/inside") == "shop/etcd-n1"
    assert len(book) == 1
    book.change(mirror, None)
    assert book.of_path(f"/kubepods/pod{'ab' * 16}/x") is None


def test_the_annotation_is_written_when_entries_come_and_go_and_now_and_then(pods: PodIndex) -> None:
    pace = AnnotationSchedule(30.0)
    one = entries_of([by(cgroup(BATCH), lost=0.4)], pods)
    grown = entries_of([by(cgroup(BATCH), lost=0.8)], pods)
    two = entries_of([by(cgroup(BATCH)), by("/x", resource="memory")], pods)
    assert pace.due((), 0.0), "an agent of before may have left one"
    assert pace.write((), 0.0) is None
    assert not pace.due((), 1000.0)
    assert pace.due(one, 1000.0)
    text = pace.write(one, 1000.0)
    assert [each.until_seconds for each in from_annotation(text)] == [1090.0]
    assert not pace.due(grown, 1029.0)
    assert pace.due(grown, 1030.0)
    assert not pace.due(two, 1000.0 + MIN_WRITE_SECONDS - 0.1), "however much comes and goes"
    assert pace.due(two, 1000.0 + MIN_WRITE_SECONDS)
    pace.write(two, 1010.0)
    assert pace.due(one, 1020.0)
    pace.write(one, 1020.0)
    assert not pace.due((), 1021.0)
    assert pace.due((), 1030.0)
