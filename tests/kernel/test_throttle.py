"""Throttle episodes against the kernel's own account, at the level that has the quota."""

import time
from collections.abc import Iterator

import pytest

from api.frame import CGROUP
from api.plugin import Unsupported
from probes.probe import Kernel, ProbeLimits
from probes.throttle import Throttle, has_queue_clock
from tests.cgroups import CgroupTree, TestCgroup
from tests.waiting import wait_for

pytestmark = pytest.mark.kernel

BUSY = ["sh", "-c", "while :; do :; done"]
QUOTA_US, PERIOD_US = 5_000, 20_000
THROTTLED_NS = 900_000_000  # some 80 episodes and more on one CPU


@pytest.fixture(scope="module", params=["traced", "switched"])
def probe(module_kernel: Kernel, request: pytest.FixtureRequest) -> Iterator[Throttle]:
    """The probe by each way this kernel allows, not only the one that `open` chooses."""
    if request.param == "switched" and not has_queue_clock(module_kernel):
        pytest.xfail("this kernel's queues keep no throttle clock that can be reached")
    try:
        ways = {"traced": Throttle._open_traced, "switched": Throttle._open_switched}
        opened = Throttle(ways[request.param](module_kernel, ProbeLimits()), request.param)
    except Unsupported as refusal:
        assert request.param == "traced", refusal
        pytest.xfail(f"this kernel refuses to trace functions: {refusal}")
    yield opened
    opened.close()


@pytest.fixture
def pod(tree: CgroupTree, probe: Throttle) -> Iterator[TestCgroup]:
    with tree.make_cgroup("pod") as cgroup:
        yield cgroup
        cgroup.set_cpu_quota(None, PERIOD_US)  # older kernels let a killed task die only when its queue may run


def kernel_ns(cgroup: TestCgroup) -> int:
    """Throttled time by cpu.stat: `throttled_time` in ns on v1, `throttled_usec` on v2."""
    stat = dict(line.split() for line in (cgroup.cpu_dir / "cpu.stat").read_text().splitlines())
    return int(stat["throttled_time"]) if "throttled_time" in stat else int(stat["throttled_usec"]) * 1000


def await_throttled(cgroup: TestCgroup, least_ns: int = THROTTLED_NS) -> None:
    """Wait until the cgroup has been throttled for the given time from now."""
    enough_ns = kernel_ns(cgroup) + least_ns
    wait_for(lambda: kernel_ns(cgroup) >= enough_ns)


def measured(probe: Throttle, cgroup: TestCgroup) -> tuple[int, int, int]:
    """Throttled ns, episodes, and the sum of the histogram."""
    table = probe.read().tables[CGROUP]
    rows = table.ids == cgroup.cgroup_id
    return tuple(int(table.columns[f"throttle.{name}"][rows].sum()) for name in ("throttled_ns", "episodes", "hist"))  # type: ignore[return-value]


def assert_agrees(probe: Throttle, cgroup: TestCgroup) -> None:
    before = kernel_ns(cgroup)
    ours, episodes, in_histogram = measured(probe, cgroup)
    after = kernel_ns(cgroup)
    assert before > 0
    assert 0.95 * before <= ours <= 1.05 * after
    assert in_histogram == episodes > 10


def test_own_quota_agrees_with_the_kernel(probe: Throttle, pod: TestCgroup) -> None:
    pod.set_cpu_quota(QUOTA_US, PERIOD_US)
    pod.spawn(BUSY, cpus="0")
    await_throttled(pod)
    assert_agrees(probe, pod)


def test_each_cpus_queue_counts(probe: Throttle, pod: TestCgroup) -> None:
    pod.set_cpu_quota(QUOTA_US, PERIOD_US)
    pod.spawn(BUSY, cpus="0")
    pod.spawn(BUSY, cpus="1")
    await_throttled(pod)
    assert_agrees(probe, pod)


def test_a_parents_quota_is_the_parents(probe: Throttle, pod: TestCgroup) -> None:
    with pod.make_cgroup("limited") as limited, pod.make_cgroup("free") as free:
        pod.set_cpu_quota(QUOTA_US, PERIOD_US)
        limited.set_cpu_quota(QUOTA_US, PERIOD_US)
        limited.spawn(BUSY, cpus="0")
        free.spawn(BUSY, cpus="0")
        await_throttled(pod)
        assert_agrees(probe, pod)
        assert measured(probe, free) == (0, 0, 0)
        assert measured(probe, limited)[0] <= 1.05 * kernel_ns(limited) + PERIOD_US * 1000


def test_what_was_throttled_before_is_not_counted(kernel: Kernel, tree: CgroupTree) -> None:
    with tree.make_cgroup("pod") as pod:
        pod.set_cpu_quota(QUOTA_US, PERIOD_US)
        pod.spawn(BUSY, cpus="0")
        await_throttled(pod, THROTTLED_NS // 3)
        since = kernel_ns(pod)
        late = Throttle.open(kernel, ProbeLimits())
        try:
            opened = kernel_ns(pod)
            await_throttled(pod)
            before = kernel_ns(pod)
            ours = measured(late, pod)[0]
            assert 0.95 * (before - opened) <= ours <= 1.05 * (kernel_ns(pod) - since)
        finally:
            late.close()


def test_a_busy_group_without_quota_has_no_episode(probe: Throttle, pod: TestCgroup) -> None:
    pod.spawn(BUSY, cpus="0")
    pod.spawn(BUSY, cpus="0")
    time.sleep(0.5)
    assert measured(probe, pod) == (0, 0, 0)


def test_the_fallback_is_recorded_as_refused() -> None:
    kernel = Kernel()
    probe = Throttle.open(kernel, ProbeLimits())
    probe.close()
    assert ("fentry" in kernel.refusals) == (probe.way == "switched")


def test_neither_way_is_unsupported_with_the_reason(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(kernel.btf), "has_function", lambda _btf, _name: False)
    monkeypatch.setattr(type(kernel.btf), "has_field", lambda _btf, _struct, field: field == "throttled_clock")
    with pytest.raises(Unsupported, match="unthrottle_cfs_rq"):
        Throttle.open(kernel, ProbeLimits())
