"""Device allocation on one node: shares, whole cards by topology, partitions, joint NICs, and the ledger's sums."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kube.device import DeviceHint
from api.kube.meta import LabelSelector
from api.protocol import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA
from scheduler.devices.allocator import DeviceRequest, PartitionRule, allocate
from scheduler.devices.candidates import DeviceError, DevicePreferences, DeviceStrategy, read_hint
from scheduler.devices.inventory import Grant, NodeDevice, NodeDevices, OverCommitError, VirtualPort
from scheduler.devices.partition import default_table
from scheduler.devices.request import DeviceDemand, DeviceKind, device_demands

GI = 1 << 30
GPU_TOTAL = {GPU_CORE: 100, GPU_MEMORY_RATIO: 100, GPU_MEMORY: 16 * GI}
LEAST, MOST = DeviceStrategy
RDMA_KIND, GPU_KIND = DeviceKind.RDMA, DeviceKind.GPU


def gpu(minor: int, per_pcie: int = 2, per_numa: int = 4, **changes: object) -> NodeDevice:
    values = {"numa_node": minor // per_numa, "pcie": f"pcie-{minor // per_pcie}", "total": GPU_TOTAL} | changes
    return NodeDevice(GPU_KIND, minor, **values)  # type: ignore[arg-type]


def nic(minor: int, pcie: str, ports: tuple[VirtualPort, ...] = ()) -> NodeDevice:
    return NodeDevice(RDMA_KIND, minor, {RDMA: 100}, f"0000:0{minor}:00.0", 0, pcie, {"fabric": "a"}, ports)


def server(*taken: int, gpus: int = 8, extra: tuple[NodeDevice, ...] = ()) -> NodeDevices:
    node = NodeDevices([gpu(minor) for minor in range(gpus)] + list(extra))
    if taken:
        node.hold("others", [Grant(GPU_KIND, minor, GPU_TOTAL) for minor in taken])
    return node


def ask(requests: dict[str, int], **rest: object) -> DeviceRequest:
    return DeviceRequest(device_demands(requests), **rest)  # type: ignore[arg-type]


def minors(grants: list[Grant], kind: DeviceKind = GPU_KIND) -> list[int]:
    return [grant.minor for grant in grants if grant.kind is kind]


@pytest.mark.parametrize(
    ("taken", "count", "expected"),
    [
        pytest.param((), 1, [0], id="1-of-all"),
        pytest.param((0,), 1, [1], id="1-where-0-is-taken"),
        pytest.param((), 2, [0, 1], id="2-of-all"),
        pytest.param((0,), 2, [2, 3], id="2-where-0-is-taken"),
        pytest.param((0, 4), 2, [2, 3], id="2-where-0-and-4-are-taken"),
        pytest.param((0, 2, 4), 2, [6, 7], id="2-where-one-switch-is-whole"),
        pytest.param((0,), 4, [4, 5, 6, 7], id="4-where-0-is-taken"),
        pytest.param((0,), 3, [1, 2, 3], id="3-where-0-is-taken"),
        pytest.param((), 3, [0, 2, 3], id="3-of-all"),
        pytest.param((0, 4), 6, [1, 2, 3, 5, 6, 7], id="6-where-0-and-4-are-taken"),
    ],
)
def test_whole_cards_stay_close_and_leave_whole_switches(
    taken: tuple[int, ...], count: int, expected: list[int]
) -> None:
    chosen = minors(allocate(server(*taken), ask({GPU: 100 * count})))
    if taken == () and count == 3:
        assert len({minor // 4 for minor in chosen}) == 1
        assert len({minor // 2 for minor in chosen}) == 2
    else:
        assert chosen == expected


def test_too_many_cards_are_refused_with_the_reason() -> None:
    with pytest.raises(DeviceError, match="Insufficient gpu devices"):
        allocate(server(0, 1), ask({GPU: 700}))


@pytest.mark.parametrize(("strategy", "expected"), [(LEAST, 1), (MOST, 0)])
def test_share_spreads_or_packs(strategy: DeviceStrategy, expected: int) -> None:
    node = server(gpus=2)
    node.hold("other", [Grant(GPU_KIND, 0, {GPU_CORE: 30, GPU_MEMORY_RATIO: 30})])
    assert minors(allocate(node, ask({GPU: 50}, strategy=strategy))) == [expected]


def test_memory_in_bytes_counts_as_percent_too() -> None:
    (grant,) = allocate(server(), ask({GPU_MEMORY: 4 * GI}))
    assert grant.amounts == {GPU_MEMORY: 4 * GI, GPU_MEMORY_RATIO: 25}
    (grant,) = allocate(server(), ask({GPU_MEMORY_RATIO: 50}))
    assert grant.amounts == {GPU_MEMORY: 8 * GI, GPU_MEMORY_RATIO: 50}


def test_unhealthy_device_gives_nothing() -> None:
    node = NodeDevices([gpu(0, total={}), gpu(1)])
    assert minors(allocate(node, ask({GPU: 50}))) == [1]
    with pytest.raises(DeviceError):
        allocate(node, ask({GPU: 200}))


def test_selector_and_first_minors_and_numa_mask() -> None:
    node = NodeDevices([gpu(0), gpu(1, labels={"tier": "gold"}), gpu(5)])
    gold = DevicePreferences(selector=LabelSelector(match_labels={"tier": "gold"}))
    assert minors(allocate(node, ask({GPU: 50}, preferences={GPU_KIND: gold}))) == [1]
    assert minors(allocate(node, ask({GPU: 50}, preferences={GPU_KIND: DevicePreferences(first=(5,))}))) == [5]
    assert minors(allocate(node, ask({GPU: 50}, preferences={GPU_KIND: DevicePreferences(numa_mask=0b10)}))) == [5]


@pytest.mark.parametrize(
    ("scope", "count", "fits"), [("PCIe", 2, True), ("PCIe", 3, False), ("NUMANode", 4, True), ("NUMANode", 5, False)]
)
def test_required_scope(scope: str, count: int, fits: bool) -> None:
    request = ask({GPU: 100 * count}, preferences={GPU_KIND: DevicePreferences(scope=scope)})
    if fits:
        assert len(allocate(server(), request)) == count
    else:
        with pytest.raises(DeviceError, match="topology scoped"):
            allocate(server(), request)


def test_partitions_keep_larger_ones_intact() -> None:
    table = default_table("NVIDIA-H100")
    rule = PartitionRule(table, honor=True)
    assert minors(allocate(server(), ask({GPU: 200}, partition=rule))) == [0, 1]
    assert minors(allocate(server(0), ask({GPU: 200}, partition=rule))) == [2, 3]
    assert minors(allocate(server(0), ask({GPU: 100}, partition=rule))) == [1]
    assert minors(allocate(server(0, 4), ask({GPU: 100}, partition=rule))) == [1]
    with pytest.raises(DeviceError, match="partition"):
        allocate(server(1, 2, 5, 6), ask({GPU: 200}, partition=rule))
    with pytest.raises(DeviceError, match="listed"):
        allocate(server(), ask({GPU: 300}, partition=rule))


def test_preferred_partitions_fall_back_to_topology() -> None:
    rule = PartitionRule(default_table("H800"))
    assert len(minors(allocate(server(1, 2, 5, 6), ask({GPU: 200}, partition=rule)))) == 2
    assert len(minors(allocate(server(), ask({GPU: 300}, partition=rule)))) == 3


def test_no_table_for_other_models() -> None:
    assert default_table("A100") is None


NICS = tuple(nic(index, f"pcie-{index}") for index in range(4))


def test_joint_nic_sits_on_the_gpus_switch() -> None:
    node = server(0, 1, extra=NICS)
    grants = allocate(node, ask({GPU: 200, RDMA: 100}, joint=(GPU_KIND, RDMA_KIND), same_pcie=True))
    assert minors(grants) == [2, 3]
    assert minors(grants, RDMA_KIND) == [1]


def test_joint_gives_one_nic_per_switch() -> None:
    grants = allocate(server(extra=NICS), ask({GPU: 400, RDMA: 100}, joint=(GPU_KIND, RDMA_KIND), same_pcie=True))
    assert minors(grants) == [0, 1, 2, 3]
    assert minors(grants, RDMA_KIND) == [0, 1]


def test_joint_avoids_switches_without_a_free_nic() -> None:
    node = server(extra=NICS)
    node.hold("nic-user", [Grant(RDMA_KIND, 0, {RDMA: 100})])
    grants = allocate(node, ask({GPU: 100, RDMA: 100}, joint=(GPU_KIND, RDMA_KIND), same_pcie=True))
    assert minors(grants) == [2]
    assert minors(grants, RDMA_KIND) == [1]


def test_joint_violation_and_fallback() -> None:
    node = server(extra=(nic(0, "elsewhere"),))
    request = {GPU: 100, RDMA: 100}
    assert minors(allocate(node, ask(request, joint=(GPU_KIND, RDMA_KIND))), RDMA_KIND) == [0]
    with pytest.raises(DeviceError):
        allocate(node, ask(request, joint=(GPU_KIND, RDMA_KIND), same_pcie=True))


def test_virtual_functions_are_given_once_in_bus_order() -> None:
    ports = (VirtualPort(0, "01.1", {"role": "x"}), VirtualPort(1, "01.2", {"role": "x"}))
    node = NodeDevices([nic(0, "pcie-0", ports)])
    preferences = DevicePreferences(port_selector=LabelSelector(match_labels={"role": "x"}))
    request = ask({RDMA: 1}, preferences={RDMA_KIND: preferences})
    for uid, bus_id in (("a", "01.1"), ("b", "01.2")):
        grants = allocate(node, request)
        assert [port.bus_id for port in grants[0].ports] == [bus_id]
        node.hold(uid, grants)
    with pytest.raises(DeviceError):
        allocate(node, request)
    node.release("a")
    assert allocate(node, request)[0].ports[0].bus_id == "01.1"


def test_hint_strategies() -> None:
    demand = DeviceDemand(RDMA_KIND, 1, {RDMA: 2})
    counted, preferences = read_hint(
        DeviceHint(allocate_strategy="RequestsAsCount", exclusive_policy="DeviceLevel"), demand
    )
    assert (counted.count, counted.each, preferences.exclusive) == (2, {RDMA: 100}, "DeviceLevel")
    plain, preferences = read_hint(DeviceHint(allocate_strategy="ApplyForAll"), demand)
    assert plain == demand
    node = NodeDevices(NICS)
    assert minors(allocate(node, DeviceRequest({RDMA_KIND: plain}, {RDMA_KIND: preferences})), RDMA_KIND) == [
        0,
        1,
        2,
        3,
    ]


def test_exclusive_switch_keeps_out_of_used_ones() -> None:
    request = ask({GPU: 50}, preferences={GPU_KIND: DevicePreferences(exclusive="PCIeLevel")})
    assert minors(allocate(server(0, 2), request)) == [4]
    request = ask({GPU: 50}, preferences={GPU_KIND: DevicePreferences(exclusive="DeviceLevel")})
    node = server(gpus=2)
    node.hold("other", [Grant(GPU_KIND, 0, {GPU_MEMORY_RATIO: 10})])
    assert minors(allocate(node, request)) == [1]


def test_overcommit_is_refused_and_changes_nothing() -> None:
    node = server(gpus=1)
    node.hold("a", [Grant(GPU_KIND, 0, {GPU_MEMORY_RATIO: 60})])
    with pytest.raises(OverCommitError, match="gpu 0"):
        node.hold("b", [Grant(GPU_KIND, 0, {GPU_MEMORY_RATIO: 50})])
    with pytest.raises(OverCommitError):
        node.hold("a", [Grant(GPU_KIND, 0, {GPU_MEMORY_RATIO: 101})])
    assert node.free(node.of_kind(GPU_KIND)[0])[GPU_MEMORY_RATIO] == 40
    assert set(node.holders) == {"a"}


def test_reservation_and_the_pods_drawing_from_it_count_once() -> None:
    node = server(gpus=1)
    (device,) = node.of_kind(GPU_KIND)
    node.hold("reservation", [Grant(GPU_KIND, 0, {GPU_CORE: 60})])
    node.hold("owner", [Grant(GPU_KIND, 0, {GPU_CORE: 50})], within="reservation")
    assert node.free(device)[GPU_CORE] == 40
    assert node.without(["reservation"]).free(device)[GPU_CORE] == 50
    node.hold("second", [Grant(GPU_KIND, 0, {GPU_CORE: 30})], within="reservation")
    assert node.free(device)[GPU_CORE] == 20
    node.release("reservation")
    assert node.free(device)[GPU_CORE] == 20
    node.release("owner")
    node.release("second")
    assert node.idle(device)


@given(
    st.lists(st.sampled_from([10, 25, 33, 50, 81, 100, 200, 400]), max_size=40),
    st.randoms(use_true_random=False),
    st.sampled_from([LEAST, MOST]),
)
def test_no_device_is_ever_given_beyond_100_percent(
    percents: list[int], random: Random, strategy: DeviceStrategy
) -> None:
    node = server(gpus=8, extra=NICS)
    for number, percent in enumerate(percents):
        request = ask({GPU: percent, RDMA: 1}, strategy=strategy, joint=(GPU_KIND, RDMA_KIND))
        try:
            node.hold(f"pod-{number}", allocate(node, request))
        except DeviceError:
            best = sorted((node.free(d)[GPU_CORE] for d in node.of_kind(GPU_KIND)), reverse=True)
            count = max(1, percent // 100)
            assert best[count - 1] < min(percent, 100) or all(node.free(d)[RDMA] == 0 for d in node.of_kind(RDMA_KIND))
        if node.holders and random.random() < 0.3:
            node.release(random.choice(sorted(node.holders)))
        for device in node.of_kind(GPU_KIND):
            held = sum(
                g.amounts[GPU_CORE]
                for gs in node.holders.values()
                for g in gs.grants
                if (g.kind, g.minor) == (GPU_KIND, device.minor)
            )
            assert held == 100 - node.free(device)[GPU_CORE] <= 100
