"""Files and texts of each knob on v1 and v2, and the reasons where a host lacks it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.intents import Knob
from api.plugin import Unsupported
from koordlet.host.attribute_formats import (
    PAGE_BYTES,
    Format,
    Layout,
    canonical,
    item_command,
    item_text,
    schemata_items,
    shares_of_weight,
    written_text,
)
from koordlet.host.attributes import KernelFile
from koordlet.host.knobs.knobs import CgroupGone, Knobs
from tests.koordlet.enforcer.hosts import FakeHost


def parts_of(host: FakeHost, knob: Knob, value: str, target: str = "/pod") -> dict[str, str]:
    """Name of the file (and item) to the text that is written."""
    found = {}
    for assignment in Knobs(host.tree).assignments(knob, target, value):
        assert isinstance(assignment.attribute, KernelFile)
        name = assignment.attribute.path.rpartition("/")[2] + (
            f"#{assignment.attribute.item}" if assignment.attribute.item else ""
        )
        found[name] = item_command(
            assignment.attribute.layout,
            assignment.attribute.item,
            written_text(assignment.attribute.format, assignment.value),
        )
    return found


MIB = 1 << 20
V1_CASES = [
    pytest.param(Knob.CPU_WEIGHT, "100", {"cpu.shares": "1024"}, id="weight-100-is-1024-shares"),
    pytest.param(Knob.CPU_WEIGHT, "1", {"cpu.shares": "2"}, id="weight-1-is-the-least"),
    pytest.param(Knob.CPU_MAX, "max", {"cpu.cfs_quota_us": "-1"}, id="no-quota"),
    pytest.param(
        Knob.CPU_MAX,
        "20000 50000",
        {"cpu.cfs_quota_us": "20000", "cpu.cfs_period_us": "50000"},
        id="quota-and-period",
    ),
    pytest.param(Knob.CPU_BURST, "500", {"cpu.cfs_burst_us": "500"}, id="burst"),
    pytest.param(Knob.CPU_IDLE, "1", {"cpu.shares": "3", "cpu.idle": "1"}, id="idle-hides-the-weight"),
    pytest.param(Knob.CPUSET_CPUS, "3,1-2", {"cpuset.cpus": "1-3"}, id="cpuset"),
    pytest.param(Knob.MEMORY_MAX, "max", {"memory.limit_in_bytes": "-1"}, id="no-memory-limit"),
    pytest.param(Knob.MEMORY_MAX, str(MIB + 5), {"memory.limit_in_bytes": str(MIB)}, id="whole-pages"),
    pytest.param(Knob.FREEZE, "1", {"freezer.state": "FROZEN"}, id="freeze"),
    pytest.param(Knob.IO_WEIGHT, "5000", {"blkio.bfq.weight": "1000"}, id="bfq-goes-to-1000"),
    pytest.param(Knob.IO_WEIGHT, "8:0 50", {"blkio.bfq.weight_device#8:0": "8:0 50"}, id="weight-of-a-device"),
    pytest.param(
        Knob.IO_MAX,
        "8:0 rbps=1000 wiops=max",
        {"blkio.throttle.read_bps_device#8:0": "8:0 1000", "blkio.throttle.write_iops_device#8:0": "8:0 0"},
        id="throttles",
    ),
    pytest.param(Knob.SYSCTL, "2000", {"min_free_kbytes": "2000"}, id="sysctl"),
]
V2_CASES = [
    pytest.param(Knob.CPU_WEIGHT, "100", {"cpu.weight": "100"}, id="weight"),
    pytest.param(Knob.CPU_MAX, "max", {"cpu.max": "max 100000"}, id="period-kept"),
    pytest.param(Knob.CPU_MAX, "20000 50000", {"cpu.max": "20000 50000"}, id="quota-and-period"),
    pytest.param(Knob.CPU_IDLE, "1", {"cpu.weight": "1", "cpu.idle": "1"}, id="idle-hides-the-weight"),
    pytest.param(Knob.MEMORY_LOW, "max", {"memory.low": "max"}, id="memory-low"),
    pytest.param(Knob.MEMORY_HIGH, str(MIB + 1), {"memory.high": str(MIB)}, id="whole-pages"),
    pytest.param(Knob.FREEZE, "1", {"cgroup.freeze": "1"}, id="freeze"),
    pytest.param(Knob.IO_WEIGHT, "50", {"io.weight#default": "default 50"}, id="io-weight"),
    pytest.param(
        Knob.IO_MAX,
        "8:0 rbps=1000 wbps=max\n8:16 riops=5",
        {"io.max#8:0 rbps": "8:0 rbps=1000", "io.max#8:0 wbps": "8:0 wbps=max", "io.max#8:16 riops": "8:16 riops=5"},
        id="io-max-key-by-key",
    ),
]


@pytest.mark.parametrize(("knob", "value", "files"), V1_CASES)
def test_on_v1(tmp_path: Path, knob: Knob, value: str, files: dict[str, str]) -> None:
    host = FakeHost(tmp_path, version=1)
    host.make("/pod")
    target = "vm.min_free_kbytes" if knob == Knob.SYSCTL else "/pod"
    assert parts_of(host, knob, value, target) == files


@pytest.mark.parametrize(("knob", "value", "files"), V2_CASES)
def test_on_v2(tmp_path: Path, knob: Knob, value: str, files: dict[str, str]) -> None:
    host = FakeHost(tmp_path, version=2)
    host.make("/pod")
    assert parts_of(host, knob, value) == files


@pytest.mark.parametrize("knob", [Knob.MEMORY_MIN, Knob.MEMORY_LOW, Knob.MEMORY_HIGH])
def test_v1_has_no_memory_protection_and_says_so(tmp_path: Path, knob: Knob) -> None:
    host = FakeHost(tmp_path, version=1)
    host.make("/pod")
    with pytest.raises(Unsupported) as lack:
        Knobs(host.tree).assignments(knob, "/pod", "4096")
    assert "soft limit is no equivalent" in lack.value.reason
    assert lack.value.remedy


@pytest.mark.parametrize("knob", [Knob.CORE_SCHED, Knob.NET_CLASS, Knob.NODE_TAINT, Knob.CPU_BVT, Knob.SCHED_FEATURE])
def test_what_the_host_has_not_is_a_reason(tmp_path: Path, knob: Knob) -> None:
    host = FakeHost(tmp_path)
    host.make("/pod")
    with pytest.raises(Unsupported):
        Knobs(host.tree).assignments(knob, "/pod", "1")


def test_a_cgroup_that_is_gone_and_one_that_another_hierarchy_lacks(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, version=1)
    with pytest.raises(CgroupGone):
        Knobs(host.tree).assignments(Knob.MEMORY_MAX, "/pod", "max")
    (tmp_path / "cg/cpu/pod").mkdir()
    with pytest.raises(Unsupported, match="not in the memory hierarchy"):
        Knobs(host.tree).assignments(Knob.MEMORY_MAX, "/pod", "max")


def test_a_target_stays_in_its_hierarchy(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="leaves"):
        Knobs(FakeHost(tmp_path).tree).assignments(Knob.CPU_WEIGHT, "/pod/../../etc", "1")


def test_of_several_words_the_chosen_one_is_the_value(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    assignment = Knobs(host.tree).assignments(Knob.SYSCTL, "transparent_hugepage/enabled", "never")[0]
    assert assignment.attribute.read() == {"madvise"}


@pytest.mark.parametrize(
    ("text_format", "texts"),
    [
        pytest.param(Format.QUOTA_US, ("-1", "max", "-5\n"), id="quota-us"),
        pytest.param(Format.LIMIT_BYTES, ("max", "9223372036854771712", str((1 << 63) - 1), "-1"), id="limit-bytes"),
        pytest.param(Format.CPUS, ("0-3", "0,1,2,3", "2-3,0-1\n"), id="cpus"),
        pytest.param(Format.FREEZER, ("FROZEN", "FREEZING", "1"), id="freezer"),
        pytest.param(Format.MASK, ("7ff", "07FF", "0x7ff"), id="mask"),
        pytest.param(Format.THROTTLE, ("max", "0"), id="throttle"),
        pytest.param(Format.CPU_MAX, ("max 100000", "max 0100000\n"), id="cpu-max"),
        pytest.param(Format.DECIMAL, ("95", "95.00"), id="decimal"),
    ],
)
def test_texts_of_one_meaning(text_format: Format, texts: tuple[str, ...]) -> None:
    assert len({canonical(text_format, text) for text in texts}) == 1


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_shares_keep_the_order_of_weights(first: int, second: int) -> None:
    assert 2 <= shares_of_weight(first) <= 262_144
    assert (first <= second) <= (shares_of_weight(first) <= shares_of_weight(second))


@given(st.integers(0, (1 << 63) - PAGE_BYTES - 1))
def test_bytes_are_cut_to_pages_once(amount: int) -> None:
    once = canonical(Format.BYTES, str(amount))
    assert canonical(Format.BYTES, once) == once


def test_one_item_is_read_and_set_alone() -> None:
    text = "    MB:0=100;1=50\n    L3:0=7ff;1=00f\n"
    assert schemata_items(text) == {"MB:0": "100", "MB:1": "50", "L3:0": "7ff", "L3:1": "00f"}
    assert item_command(Layout.DOMAIN, "L3:1", "3") == "L3:1=3"
    assert item_text(Layout.DEVICE_KEY, "8:16 wbps", "8:0 rbps=1 wbps=2\n8:16 rbps=3 wbps=4\n") == "4"
    assert item_text(Layout.DEVICE, "8:0", "8:16 5\n8:0 7\n") == "7"
    assert item_text(Layout.WORD, "HRTICK", "START_DEBIT NO_HRTICK") == "0"


def test_the_least_weight_raises_nobody_on_v1(tmp_path: Path) -> None:
    """The kubelet's best-effort directory has 2 shares, the least that there are."""
    host = FakeHost(tmp_path, 1)
    host.make("/pod")
    assert parts_of(host, Knob.CPU_WEIGHT, "1") == {"cpu.shares": "2"}
    assert parts_of(host, Knob.CPU_WEIGHT, "2") == {"cpu.shares": "20"}


def test_a_cost_model_of_the_users_own_is_written(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, 2)
    host.file("/", "io.cost.model").write_text("")
    model = "8:0 ctrl=user model=linear rbps=1000 rseqiops=10"
    assert parts_of(host, Knob.IO_COST_MODEL, model, "/") == {
        "io.cost.model#8:0 ctrl": "8:0 ctrl=user",
        "io.cost.model#8:0 model": "8:0 model=linear",
        "io.cost.model#8:0 rbps": "8:0 rbps=1000",
        "io.cost.model#8:0 rseqiops": "8:0 rseqiops=10",
    }
