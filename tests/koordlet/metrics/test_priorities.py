"""Use by priority class: pods by their own class, other cgroups by theirs, the node's programs apart."""

from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from api.frame import CGROUP, CgroupInfo, CgroupKind, Table
from api.intents import Knob, Setting
from api.window import Window
from koordlet.metrics.priorities import PriorityMetrics, priority_of, suppression
from koordlet.tick import Tick
from tests.frames import make_frame

PATHS = {1: "/", 2: "/pods/a", 3: "/pods/a/c", 4: "/pods/b", 5: "/pods/b/c", 6: "/svc", 7: "/svc/inner", 8: "/sshd"}


def pod(number: int, qos: str, band: str, kind: CgroupKind) -> CgroupInfo:
    return CgroupInfo(number, PATHS[number], "", qos, kind=kind, pod_uid=f"u{number // 2}", priority_band=band)


INFOS = (
    CgroupInfo(1, "/", "/"),
    pod(2, "LS", "koord-mid", CgroupKind.POD),
    pod(3, "LS", "koord-mid", CgroupKind.CONTAINER),
    pod(4, "BE", "", CgroupKind.POD),
    pod(5, "BE", "", CgroupKind.CONTAINER),
    CgroupInfo(6, "/svc", "", "LS"),
    CgroupInfo(7, "/svc/inner", "", "LS"),
    CgroupInfo(8, "/sshd", "sshd"),
)


def tick(infos: tuple[CgroupInfo, ...] = INFOS, **columns: list[float]) -> Tick:
    def frame(second: int) -> Any:
        made = make_frame(float(second), {info.id: info.path for info in infos}, {})
        named = {name.replace("__", "."): second * np.array(values, dtype=float) for name, values in columns.items()}
        cpus: Any = {"cpu": ["0", "1", "2", "3"]}
        tables = {CGROUP: Table(made.cgroup.keys, named), "host.cpu": Table(cpus, {})}
        return type(made)(made.monotonic_ns, made.wall_ns, infos, tables)

    return Tick.of(Window((frame(1), frame(2))))


def served(*ticks: Tick, settings: Any = (), evictions: Any = None) -> str:
    metrics = PriorityMetrics()
    for each in ticks:
        metrics.update(each, settings, evictions or {})
    registry = CollectorRegistry()
    registry.register(metrics)
    return generate_latest(registry).decode()


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        pytest.param(INFOS[1], "mid", id="pod-of-a-band"),
        pytest.param(INFOS[3], "batch", id="best-effort-pod-without-band"),
        pytest.param(CgroupInfo(1, "/p", "", "LSR", pod_uid="u"), "prod", id="other-pod-without-band"),
        pytest.param(CgroupInfo(1, "/p", "", "SYSTEM", pod_uid="u", priority_band="koord-prod"), "system", id="system"),
        pytest.param(CgroupInfo(1, "/p", "", "", pod_uid="u", kube_qos="BestEffort"), "batch", id="layout-alone"),
        pytest.param(CgroupInfo(1, "/p", "", "", pod_uid="u", priority_band="koord-free"), "free", id="free"),
        pytest.param(CgroupInfo(1, "/p", "", "LS", pod_uid="u", priority_band="nonsense"), "prod", id="unknown-band"),
        pytest.param(INFOS[7], "system", id="no-pod-no-class"),
    ],
)
def test_each_cgroup_has_one_class(info: CgroupInfo, expected: str) -> None:
    assert priority_of(info) == expected


def test_own_run_time_is_summed_by_class_over_ticks() -> None:
    one = tick(cpu__oncpu_ns=[1, 0, 2, 0, 4, 8, 16, 32])
    text = served(one, one)
    expected = {"system": 2 * 33e-9, "mid": 2 * 2e-9, "batch": 2 * 4e-9, "prod": 2 * 24e-9}
    for name, seconds in expected.items():
        line = next(line for line in text.splitlines() if f'usage_seconds_total{{priority="{name}"}}' in line)
        assert float(line.split()[-1]) == pytest.approx(seconds)


def test_without_the_probe_sums_of_the_outermost_count_once() -> None:
    text = served(tick(cpustat__usage_ns=[99, 2, 2, 4, 4, 24, 16, 32]))
    for name, nanoseconds in {"mid": 2, "batch": 4, "prod": 24}.items():
        assert f'koord_priority_cpu_usage_seconds_total{{priority="{name}"}} {nanoseconds}e-09' in text.replace(
            "2.4e-08", "24e-09"
        )


def test_memory_is_that_of_pods_and_classed_cgroups() -> None:
    text = served(tick(memstat__usage_bytes=[99, 2, 2, 4, 4, 24, 16, 32]))
    assert 'koord_priority_memory_usage_bytes{priority="mid"} 4.0' in text
    assert 'koord_priority_memory_usage_bytes{priority="prod"} 48.0' in text
    assert 'priority="system"} ' not in "\n".join(line for line in text.splitlines() if "memory_usage" in line)


def test_the_kubelets_directories_are_no_use_beside_that_of_their_pods() -> None:
    directory = CgroupInfo(2, "/pods", "", "BE", kind=CgroupKind.KUBEPODS, kube_qos="BestEffort")
    infos = (directory, pod(4, "BE", "", CgroupKind.POD), pod(5, "BE", "", CgroupKind.CONTAINER))
    text = served(tick(infos, memstat__usage_bytes=[4, 4, 4]))
    assert 'koord_priority_memory_usage_bytes{priority="batch"} 8.0' in text


@pytest.mark.parametrize("column", ["cpustat__usage_ns", "cpu__oncpu_ns"])
def test_what_is_not_measured_in_a_tick_adds_nothing(column: str) -> None:
    infos = (pod(2, "LS", "koord-mid", CgroupKind.POD), pod(4, "BE", "", CgroupKind.POD))
    text = served(tick(infos, **{column: [3e9, float("nan")]}), tick(infos, **{column: [3e9, 5e9]}))
    assert 'koord_priority_cpu_usage_seconds_total{priority="mid"} 6.0' in text
    assert 'koord_priority_cpu_usage_seconds_total{priority="batch"} 5.0' in text


def setting(knob: Knob, value: str, strategy: str = "cpu_suppress") -> Setting:
    return Setting(strategy=strategy, target="/be", reason="", knob=knob, value=value)


def test_suppression_is_the_widest_directory_of_each_policy() -> None:
    settings = [
        setting(Knob.CPU_MAX, "150000 100000"),
        setting(Knob.CPU_MAX, "50000 100000"),
        setting(Knob.CPUSET_CPUS, "0-1,3"),
        setting(Knob.CPU_MAX, "max 100000"),
        setting(Knob.CPU_MAX, "10000 100000", "response"),
    ]
    assert suppression(settings) == {"cfsQuota": 1.5, "cpuset": 3.0}
    assert "koord_batch_cpu_allowed_cores 1.5" in served(tick(cpu__oncpu_ns=[0] * 8), settings=settings)


def test_without_suppression_the_whole_node_is_allowed() -> None:
    assert "koord_batch_cpu_allowed_cores 4.0" in served(tick(cpu__oncpu_ns=[0] * 8))


def test_evictions_say_whose_and_why() -> None:
    text = served(tick(cpu__oncpu_ns=[0] * 8), evictions={("shop", "spark", "memory_evict"): 2})
    assert 'koord_evictions_total{name="spark",namespace="shop",strategy="memory_evict"} 2.0' in text
