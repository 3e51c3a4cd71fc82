"""Koordinator's names: what is measured is served under them, what is not is absent."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from api.frame import CgroupInfo, CgroupKind
from api.intents import Knob, Setting
from api.window import Window
from koordlet.control.control_loop import ControlLoop
from koordlet.metrics.koordinator_names import FAMILIES, KoordinatorMetrics
from koordlet.tick import Tick
from tests.frames import make_frame

WEB, BATCH = "/kubepods/burstable/pod1", "/kubepods/besteffort/pod2"
PATHS = {1: "/", 2: WEB, 3: f"{WEB}/c1", 4: BATCH, 5: f"{BATCH}/c2"}


def infos() -> tuple[CgroupInfo, ...]:
    def pod(number: int, path: str, name: str, qos: str) -> CgroupInfo:
        return CgroupInfo(number, path, name, qos, kind=CgroupKind.POD, pod_uid=name, namespace="shop", pod=name)

    def container(number: int, path: str, name: str, qos: str) -> CgroupInfo:
        info = pod(number, path, name, qos)
        return CgroupInfo(
            number,
            path,
            f"shop/{name}/main",
            qos,
            container="main",
            kind=CgroupKind.CONTAINER,
            pod_uid=info.pod_uid,
            container_id=f"id-{name}",
            namespace="shop",
            pod=name,
        )

    return (
        CgroupInfo(1, "/", "/"),
        pod(2, WEB, "web", "LS"),
        container(3, f"{WEB}/c1", "web", "LS"),
        pod(4, BATCH, "batch", "BE"),
        container(5, f"{BATCH}/c2", "batch", "BE"),
    )


def tick(**more: list[int]) -> Tick:
    def frame(second: int) -> Any:
        columns = {"cpu.oncpu_ns": [0, 0, second * 500_000_000, 0, second * 1_500_000_000]}
        columns |= {name.replace("__", "."): [value * second for value in values] for name, values in more.items()}
        made = make_frame(float(second), PATHS, columns)
        return type(made)(made.monotonic_ns, made.wall_ns, infos(), made.tables)

    return Tick.of(Window((frame(1), frame(2))))


def setting(strategy: str, target: str, knob: Knob, value: str) -> Setting:
    return Setting(strategy=strategy, target=target, reason="", knob=knob, value=value)


def control(*settings: Setting, is_dry_run: bool = False) -> ControlLoop:
    enforcer = SimpleNamespace(
        is_dry_run=is_dry_run,
        active_settings=lambda: {(one.target, one.knob): one for one in settings},
        counts={("cpu_evict", "evict", "evicted"): 3, ("cpu_evict", "evict", "refused"): 9},
    )
    return cast(ControlLoop, SimpleNamespace(enforcer=enforcer))


def served(measured: Tick, *settings: Setting, is_dry_run: bool = False) -> str:
    metrics = KoordinatorMetrics("node-7", 10.0, 100)
    metrics.update(measured, control(*settings, is_dry_run=is_dry_run))
    registry = CollectorRegistry()
    registry.register(metrics)
    return generate_latest(registry).decode()


def test_usage_is_split_by_class() -> None:
    text = served(tick())
    assert 'koordlet_be_suppress_ls_used_cpu_cores{node="node-7"} 0.5\n' in text
    assert 'koordlet_be_suppress_be_used_cpu_cores{node="node-7"} 1.5\n' in text
    assert 'koordlet_start_time{node="node-7"}' in text


def test_cycles_and_stalls_carry_the_labels_of_the_container() -> None:
    text = served(
        tick(pmu__cycles=[0, 0, 40, 0, 9], pmu__instructions=[0, 0, 20, 0, 3], pressure__memory_some_us=[1_000] * 5)
    )
    labels = 'container_id="id-web",container_name="main"'
    assert f'koordlet_container_cpi{{{labels},cpi_field="cycles",node="node-7"' in "".join(sorted_labels(text))
    assert 'koordlet_pod_psi{cpu_full_supported="true",node="node-7",pod_name="web"' in "".join(sorted_labels(text))
    assert " 0.1\n" in text, "a millisecond of a second is 0.1 %"


def test_what_cpu_suppress_and_burst_have_set_is_served() -> None:
    text = served(
        tick(),
        setting("cpu_suppress", "/kubepods/besteffort", Knob.CPU_MAX, "250000 100000"),
        setting("cpu_suppress", "/kubepods/besteffort", Knob.CPUSET_CPUS, "0-2,5"),
        setting("cpu_burst", f"{WEB}/c1", Knob.CPU_MAX, "300000 100000"),
        setting("cpu_burst", f"{WEB}/c1", Knob.CPU_BURST, "50000"),
        setting("cpu_burst", "/gone", Knob.CPU_BURST, "7"),
        setting("response", f"{BATCH}/c2", Knob.CPU_MAX, "1 100000"),
    )
    assert 'koordlet_be_suppress_cpu_cores{node="node-7",type="cfsQuota"} 2.5' in text
    assert 'koordlet_be_suppress_cpu_cores{node="node-7",type="cpuset"} 4.0' in text
    assert text.count("koordlet_container_scaled_cfs_quota_us{") == 1
    assert " 300000.0\n" in text
    assert " 50000.0\n" in text


def test_evictions_have_no_suffix_and_no_refused_ones() -> None:
    assert 'koordlet_pod_eviction{node="node-7",reason="cpu_evict"} 3.0\n' in served(tick())


def test_evictions_of_a_dry_run_are_none() -> None:
    assert "koordlet_pod_eviction" not in served(tick(), is_dry_run=True)


def test_what_is_not_measured_is_absent() -> None:
    text = served(tick())
    for name in ("koordlet_container_cpi", "koordlet_container_psi", "koordlet_node_used_memory_bytes"):
        assert name not in text


def test_a_stall_stands_until_its_file_is_read_again() -> None:
    metrics = KoordinatorMetrics("node-7", 10.0, 100)
    metrics.update(tick(pressure__io_full_us=[2_000] * 5), control())
    again = tick(pressure__io_full_us=[9_000] * 5)
    newest = again.window.last
    stale = type(newest)(
        newest.monotonic_ns,
        newest.wall_ns,
        newest.cgroups,
        newest.tables,
        read_ns={"pressure.io_full_us": newest.cgroup.ids.astype(float) * 0 + 1.0},
    )
    metrics.update(Tick.of(Window((again.window.frames[0], stale))), control())
    values = [sample.value for family in metrics.collect() if "psi" in family.name for sample in family.samples]
    assert values == pytest.approx([0.2] * 4)


def test_every_family_is_of_the_agents_subsystem() -> None:
    assert all(name.startswith("koordlet_") for name in FAMILIES)


def sorted_labels(text: str) -> list[str]:
    """Lines with their labels in order."""
    lines = []
    for line in text.splitlines():
        name, brace, rest = line.partition("{")
        labels, _, value = rest.partition("}")
        lines.append(f"{name}{{{','.join(sorted(labels.split(',')))}}}{value}\n" if brace else f"{line}\n")
    return lines
