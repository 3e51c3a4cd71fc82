"""The node as strategies see it: layouts of the kubelet, host applications, and what is not known."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from api.frame import HOST, Table
from api.intents import Knob
from api.kube.resources import CPU, MEMORY
from api.protocol import BATCH_CPU
from api.qos import QoSClass, QoSSource
from api.window import Window
from koordlet.config import StrategiesSettings
from koordlet.control.node_view import NodeConfiguration, NodeViewBuilder
from koordlet.host.knobs.knobs import Knobs
from koordlet.identity.pods import PodContainer, PodFacts
from koordlet.strategies.view import Group, GroupKind, KubeQoS
from koordlet.tick import Tick
from tests.frames import make_frame
from tests.koordlet.enforcer.hosts import FakeHost
from tests.trees import make_tree

UID = "12345678-1234-1234-1234-123456789012"
BE = "/kubepods/besteffort"
POD = f"{BE}/pod{UID}"
CONTAINER = f"{POD}/{'a' * 64}"
PATHS = ["/", "/kubepods", BE, POD, CONTAINER, "/batch", "/plain"]


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path / "host", request.param)
    for path in PATHS[1:]:
        made.make(path)
    return made


def make_tick(**columns: list[int]) -> Tick:
    cgroups = dict(enumerate(PATHS, start=1))
    growth = {name.replace("__", "."): values for name, values in columns.items()}
    before = make_frame(1.0, cgroups, {name: [0] * len(PATHS) for name in growth})
    after = make_frame(3.0, cgroups, growth)
    for frame in (before, after):
        object.__setattr__(frame, "cgroups", tuple(_classified(info) for info in frame.cgroups))
    return Tick.of(Window((before, after)))


def _classified(info):  # type: ignore[no-untyped-def]
    return replace(info, qos="BE", qos_source=QoSSource.NODE_SLO) if info.path == "/batch" else info


def test_groups_are_recognised_and_everything_else_is_left_out(host: FakeHost) -> None:
    view = NodeViewBuilder(host.tree, Knobs(host.tree)).view(make_tick(), {})
    assert [(group.path, group.kind) for group in view.groups] == [
        ("/kubepods", GroupKind.QOS_DIR),
        (BE, GroupKind.QOS_DIR),
        (POD, GroupKind.POD),
        (CONTAINER, GroupKind.CONTAINER),
        ("/batch", GroupKind.HOST_APP),
    ]
    directory = view.qos_dir(KubeQoS.BEST_EFFORT)
    assert directory is not None
    assert directory.path == BE
    assert [group.path for group in view.containers(view.pods[0])] == [CONTAINER]
    assert view.host_apps[0].qos is QoSClass.BE
    assert view.host_apps[0].qos_source is QoSSource.NODE_SLO


def test_fresh_run_times_of_all_below_come_before_clocks_that_are_read_in_turn(host: FakeHost) -> None:
    own = [0, 0, 0, 1_000_000_000, 3_000_000_000, 500_000_000, 0]
    in_turn = [0, 0, 0, 0, 0, 0, 0]
    tick = make_tick(cpu__oncpu_ns=own, cpustat__usage_ns=in_turn)
    view = NodeViewBuilder(host.tree, Knobs(host.tree)).view(tick, {})
    used = {group.path: group.cpu_millicores for group in view.groups}
    assert used == pytest.approx({"/kubepods": 2000.0, BE: 2000.0, POD: 2000.0, CONTAINER: 1500.0, "/batch": 250.0})


def test_usage_is_a_rate_and_what_is_not_measured_is_unknown(host: FakeHost) -> None:
    spent = [0, 0, 0, 3_000_000_000, 0, 0, 0]
    view = NodeViewBuilder(host.tree, Knobs(host.tree)).view(make_tick(cpustat__usage_ns=spent), {})
    pod = view.pods[0]
    assert pod.cpu_millicores == pytest.approx(1500)
    assert (pod.memory_bytes, pod.throttled_ratio, pod.memory_pressure_ratio) == (None, None, None)
    assert view.cpu_millicores is None


def test_present_quotas_are_read_in_one_syntax(host: FakeHost) -> None:
    if (host.file(BE, "cpu.max")).exists():
        host.file(BE, "cpu.max").write_text("50000 100000\n")
    else:
        host.file(BE, "cpu.cfs_quota_us").write_text("50000\n")
    view = NodeViewBuilder(host.tree, Knobs(host.tree)).view(make_tick(), {})
    found = {group.path: group.knobs[Knob.CPU_MAX] for group in view.groups}
    assert found[BE] == "50000 100000"
    assert found[POD].startswith("max")


def test_a_quota_that_may_be_a_strategys_own_is_no_limit_of_a_pod(host: FakeHost) -> None:
    if (host.file(POD, "cpu.max")).exists():
        host.file(POD, "cpu.max").write_text("50000 100000\n")
    else:
        host.file(POD, "cpu.cfs_quota_us").write_text("50000\n")
    pod = NodeViewBuilder(host.tree, Knobs(host.tree)).view(make_tick(), {}).pods[0]
    assert pod.knobs[Knob.CPU_MAX] == "50000 100000"
    assert CPU not in pod.limits


def test_facts_of_pods_go_before_what_files_say(host: FakeHost) -> None:
    facts = PodFacts(
        "shop/web",
        QoSClass.LS,
        9500,
        requests={CPU: 500},
        limits={CPU: 1000, MEMORY: 1 << 30},
        workload="Deployment/shop/web",
    )
    view = NodeViewBuilder(host.tree, Knobs(host.tree), {UID: facts}.get).view(make_tick(), {})
    pod = view.pods[0]
    assert (pod.name, pod.qos, pod.priority, pod.limits[CPU]) == ("shop/web", QoSClass.LS, 9500, 1000)
    assert pod.workload == "Deployment/shop/web"
    bare = NodeViewBuilder(host.tree, Knobs(host.tree)).view(make_tick(), {}).pods[0]
    assert (bare.priority, dict(bare.limits)) == (None, {})


def classified(paths: dict[str, str]) -> Tick:
    """As `make_tick`, with these classes by path."""
    made = make_tick()
    for frame in made.window.frames:
        infos = tuple(replace(info, qos=paths.get(info.path, info.qos)) for info in frame.cgroups)
        object.__setattr__(frame, "cgroups", infos)
    return made


def with_cpus(host: FakeHost, online: str) -> None:
    directory = host.root / "sys/devices/system/cpu"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "online").write_text(f"{online}\n")


def test_the_lists_of_the_reserved_classes_bind_their_cpus(host: FakeHost) -> None:
    with_cpus(host, "0-3")
    for path, listed in (("/batch", "0-3\n"), ("/plain", "2-3\n"), (CONTAINER, "1\n")):
        host.file(path, "cpuset.cpus").write_text(listed)
    facts = {UID: PodFacts("shop/web", QoSClass.LSE)}
    view = NodeViewBuilder(host.tree, Knobs(host.tree), facts.get).view(
        classified({"/batch": "LSR", "/plain": "LSR"}), {}
    )
    bound = {group.path: set(group.bound_cpus) for group in view.groups}
    assert (bound["/plain"], bound["/batch"]) == ({2, 3}, set()), "a list of all CPUs binds none"
    assert (bound[POD], bound[CONTAINER], bound[BE]) == ({1}, {1}, set()), "a pod's are its containers'"


def test_allocatable_is_what_the_settings_tell_or_leave(host: FakeHost) -> None:
    settings = StrategiesSettings(reserved={CPU: 500}, allocatable={BATCH_CPU: 3000})
    with_cpus(host, "0-3")
    view = NodeViewBuilder(host.tree, Knobs(host.tree), settings=settings).view(make_tick(), {})
    assert dict(view.node.allocatable) == {CPU: 3500, BATCH_CPU: 3000}, "memory was not measured"
    assert view.node.kubelet_reserved_millicores == 500


def test_the_fullest_file_system_that_is_there_counts(host: FakeHost) -> None:
    def used(*paths: str) -> float | None:
        settings = StrategiesSettings(disk_paths=paths)
        return NodeViewBuilder(host.tree, Knobs(host.tree), settings=settings).view(make_tick(), {}).disk_used_ratio

    assert used("/nowhere") is None
    ratio = used("/", "/nowhere")
    assert ratio is not None
    disk = shutil.disk_usage(host.root)
    assert ratio == pytest.approx(disk.used / (disk.used + disk.free), abs=0.02)


def test_who_shares_which_memory_is_looked_at_only_when_asked(host: FakeHost) -> None:
    tick = make_tick()
    memory = {"hostwide.memory_total_bytes": 1000.0, "hostwide.memory_available_bytes": 900.0}
    for frame in tick.window.frames:
        cast("dict[str, Table]", frame.tables)[HOST] = Table(
            {}, {name: np.array([amount]) for name, amount in memory.items()}
        )
    builder = NodeViewBuilder(host.tree, Knobs(host.tree))
    assert builder.view(tick, {}).memory_domains is None
    (domain,) = builder.view(tick, {}, with_memory=True).memory_domains or ()
    assert (domain.path, domain.limit_bytes, domain.free_bytes) == ("/", 1000, 900)


def test_a_kernel_without_memory_high_is_known(host: FakeHost) -> None:
    node = NodeViewBuilder(host.tree, Knobs(host.tree)).view(make_tick(), {}).node
    assert (Knob.MEMORY_HIGH in node.lacking) == (host.version == 1)


@pytest.mark.parametrize("where", ["", "/kubepods", "sysctl"])
def test_a_kernel_without_group_identity_is_known(host: FakeHost, where: str) -> None:
    assert Knob.CPU_BVT in NodeViewBuilder(host.tree, Knobs(host.tree)).view(make_tick(), {}).node.lacking
    if where == "sysctl":
        make_tree(host.root, {"proc/sys/kernel/sched_group_identity_enabled": "1\n"})
    else:
        host.make(where or "/")
        host.file(where, "cpu.bvt_warp_ns").write_text("0\n")
    assert Knob.CPU_BVT not in NodeViewBuilder(host.tree, Knobs(host.tree)).view(make_tick(), {}).node.lacking


def test_the_class_is_that_of_the_cgroup_and_protects_without_a_label(host: FakeHost) -> None:
    def pod_of(qos: str, source: QoSSource, kube_qos: str, facts: PodFacts) -> Group:
        tick = make_tick()
        for frame in tick.window.frames:
            infos = (
                replace(info, qos=qos, qos_source=source, kube_qos=kube_qos) if info.pod_uid else info
                for info in frame.cgroups
            )
            object.__setattr__(frame, "cgroups", tuple(infos))
        return NodeViewBuilder(host.tree, Knobs(host.tree), {UID: facts}.get).view(tick, {}).pods[0]

    guaranteed = pod_of("LSR", QoSSource.KUBERNETES, "Guaranteed", PodFacts("shop/web"))
    assert (guaranteed.qos, guaranteed.effective_qos, guaranteed.protected) == (QoSClass.NONE, QoSClass.LSR, True)
    by_rule = pod_of("BE", QoSSource.SETTINGS, "Guaranteed", PodFacts("shop/web", QoSClass.LSR))
    assert (by_rule.effective_qos, by_rule.protected) == (QoSClass.BE, False)
    proxy = pod_of("SYSTEM", QoSSource.PRIORITY, "BestEffort", PodFacts("kube-system/proxy", priority=2_000_001_000))
    assert (proxy.effective_qos, proxy.protected) == (QoSClass.SYSTEM, True)


def test_a_container_has_its_own_amounts_and_a_sandbox_none(host: FakeHost) -> None:
    facts = PodFacts(
        "shop/web",
        requests={CPU: 300},
        limits={CPU: 600},
        containers=(PodContainer("app", requests={CPU: 200}, limits={CPU: 500}), PodContainer("proxy")),
    )
    for name, limits in (("app", {CPU: 500}), ("POD", {})):
        tick = make_tick()
        for frame in tick.window.frames:
            infos = (replace(info, container=name) if info.path == CONTAINER else info for info in frame.cgroups)
            object.__setattr__(frame, "cgroups", tuple(infos))
        view = NodeViewBuilder(host.tree, Knobs(host.tree), {UID: facts}.get).view(tick, {})
        assert dict(view.pods[0].limits) == {CPU: 600}
        assert dict(view.containers(view.pods[0])[0].limits) == limits


def test_node_object_and_kubelet_are_followed_and_settings_go_before(host: FakeHost) -> None:
    told = NodeConfiguration(
        allocatable={CPU: 3000, BATCH_CPU: 1500},
        reserved={CPU: 1000},
        reserved_cpus=frozenset({0}),
        system_cpus=frozenset({1}),
        kubelet_static=True,
        cpu_normalization_ratio=1.2,
    )
    builder = NodeViewBuilder(host.tree, Knobs(host.tree), settings=StrategiesSettings(allocatable={BATCH_CPU: 700}))
    before = builder.view(make_tick(), {}).node
    assert (before.kubelet_static, before.reserved_cpus) == (False, frozenset())
    builder.configuration_of = lambda: told
    node = builder.view(make_tick(), {}).node
    assert node.allocatable[CPU] == 3000
    assert node.allocatable[BATCH_CPU] == 700
    assert (node.reserved, node.reserved_cpus, node.system_cpus) == ({CPU: 1000}, {0}, {1})
    assert (node.kubelet_static, node.cpu_normalization_ratio) == (True, 1.2)
    assert builder.view(make_tick(), {}).node is node


def in_turn(tick: Tick, column: str, before: list[float], now: list[float]) -> Tick:
    """The tick, whose column was read at these seconds; its frames are of the seconds 1 and 3."""
    first, last = tick.window.frames
    times = [replace(frame, read_ns={column: np.array(at) * 1e9}) for frame, at in ((first, before), (last, now))]
    return Tick.of(Window(times))


def test_cpu_time_that_stands_still_since_an_earlier_tick_is_absent(host: FakeHost) -> None:
    """A clock read in turn showed nothing for nine ticks, and ten times the truth in the tenth."""
    column, spent = "cpustat.usage_ns", [0, 0, 0, 0, 4_000_000_000, 0, 0]
    read = [3.0, 3.0, 3.0, -7.0, 3.0, 3.0, 3.0]
    tick = in_turn(make_tick(cpustat__usage_ns=spent), column, [-7.0] * 7, read)
    view = NodeViewBuilder(host.tree, Knobs(host.tree)).view(tick, {})
    used = {group.path: group.cpu_millicores for group in view.groups}
    assert used[POD] is None
    assert used[CONTAINER] == pytest.approx(400.0), "4 s in the 10 s between its readings"


def test_memory_pressure_is_the_mean_between_two_readings_until_the_next_is_due(host: FakeHost) -> None:
    column, builder = "pressure.memory_some_us", NodeViewBuilder(host.tree, Knobs(host.tree))
    tick = in_turn(make_tick(pressure__memory_some_us=[0, 0, 0, 1_000_000, 0, 0, 0]), column, [-7.0] * 7, [3.0] * 7)
    assert builder.view(tick, {}).pods[0].memory_pressure_ratio == pytest.approx(0.1)
    later = in_turn(make_tick(pressure__memory_some_us=[0] * 7), column, [-7.0] * 7, [-7.0] * 7)
    assert builder.view(later, {}).pods[0].memory_pressure_ratio == pytest.approx(0.1)
    first, last = later.window.frames
    much = [replace(frame, monotonic_ns=frame.monotonic_ns + 30 * 10**9) for frame in (first, last)]
    assert builder.view(Tick.of(Window(much)), {}).pods[0].memory_pressure_ratio is None


def test_memory_that_could_not_be_read_for_long_is_not_known(host: FakeHost) -> None:
    column, tick = "memstat.usage_bytes", make_tick(memstat__usage_bytes=[2**20] * 7)
    builder = NodeViewBuilder(host.tree, Knobs(host.tree))
    assert builder.view(in_turn(tick, column, [-7.0] * 7, [-7.0] * 7), {}).pods[0].memory_bytes == 2**20
    assert builder.view(in_turn(tick, column, [-70.0] * 7, [-70.0] * 7), {}).pods[0].memory_bytes is None


def test_disks_have_every_name_that_settings_may_call_them(host: FakeHost) -> None:
    for name, number, mapped in (("vda", "253:0", ""), ("dm-0", "252:0", "data-lv")):
        folder = host.root / "sys/block" / name
        (folder / "dm").mkdir(parents=True)
        (folder / "size").write_text("100\n")
        (folder / "dev").write_text(number + "\n")
        if mapped:
            (folder / "dm/name").write_text(mapped + "\n")
    disks = NodeViewBuilder(host.tree, Knobs(host.tree)).view(make_tick(), {}).node.disks
    assert {disks[name] for name in ("vda", "/dev/vda", "253:0")} == {"253:0"}
    assert {disks[name] for name in ("dm-0", "data-lv", "/dev/mapper/data-lv")} == {"252:0"}


def test_a_kernel_without_scheduling_identities_is_told_of(host: FakeHost) -> None:
    builder = NodeViewBuilder(host.tree, Knobs(host.tree))
    assert Knob.CPU_BVT in builder.view(make_tick(), {}).node.lacking
    for path in PATHS:
        host.file(path, "cpu.bvt_warp_ns").write_text("0\n")
    again = NodeViewBuilder(host.tree, Knobs(host.tree)).view(make_tick(), {})
    assert Knob.CPU_BVT not in again.node.lacking


def test_a_pod_that_is_told_of_otherwise_is_described_anew(host: FakeHost) -> None:
    told = [PodFacts("shop/web", QoSClass.LS, requests={CPU: 500}), None, PodFacts("shop/web", QoSClass.BE)]
    present: list[PodFacts | None] = [None]
    builder = NodeViewBuilder(host.tree, Knobs(host.tree), lambda _uid: present[0])
    found = []
    tick = make_tick()
    for present[0] in told:
        pod = builder.view(tick, {}).pods[0]
        assert builder.view(tick, {}).pods[0].requests is pod.requests, "described anew without a change"
        found.append((pod.qos, dict(pod.requests)))
    assert found == [(QoSClass.LS, {CPU: 500}), (QoSClass.NONE, {}), (QoSClass.BE, {})]


def test_a_quota_is_read_once_a_strategy_asks_for_limits(host: FakeHost) -> None:
    app = NodeViewBuilder(host.tree, Knobs(host.tree)).view(make_tick(), {}).host_apps[0]
    if host.file("/batch", "cpu.max").exists():
        host.file("/batch", "cpu.max").write_text("50000 100000\n")
    else:
        host.file("/batch", "cpu.cfs_quota_us").write_text("50000\n")
    assert app.limits == {CPU: 500}
