"""Groups, identifiers, CPUs, monitoring and the status line: commands on the tree, without a mount."""

import errno
import os
from dataclasses import replace

import pytest

from tests.resctrl_fs.hardware import AMD, INTEL, MONITOR_ONLY, Machine
from tests.resctrl_fs.nodes import Directory, File
from tests.resctrl_fs.tree import ResctrlTree

PID = os.getpid()


def read(tree: ResctrlTree, path: str) -> str:
    node = tree.lookup(path)
    assert isinstance(node, File)
    return node.read()


def names(tree: ResctrlTree, path: str) -> set[str]:
    node = tree.lookup(path)
    assert isinstance(node, Directory)
    return set(node.entries())


def write(tree: ResctrlTree, path: str, text: str) -> None:
    tree.write(path, text.encode(), PID)


def refusal(tree: ResctrlTree, path: str, text: str) -> tuple[int | None, str]:
    with pytest.raises(OSError) as refused:
        write(tree, path, text)
    return refused.value.errno, read(tree, "/info/last_cmd_status")


def few(machine: Machine, *, closids: int = 8, rmids: int = 32) -> Machine:
    assert machine.bandwidth
    assert machine.monitoring
    return replace(
        machine,
        bandwidth=replace(machine.bandwidth, num_closids=closids),
        monitoring=replace(machine.monitoring, num_rmids=rmids),
    )


def test_files_of_a_machine_with_everything() -> None:
    tree = ResctrlTree(INTEL)
    base = {"tasks", "cpus", "cpus_list", "schemata", "size", "mode", "mon_groups", "mon_data"}
    assert names(tree, "/") == base | {"info"}
    assert names(tree, "/info") == {"last_cmd_status", "L3", "MB", "L3_MON"}
    assert read(tree, "/info/L3_MON/mon_features") == "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n"
    tree.mkdir("/g")
    assert names(tree, "/g") == base
    tree.mkdir("/g/mon_groups/m")
    assert names(tree, "/g/mon_groups/m") == {"tasks", "cpus", "cpus_list", "mon_data"}


def test_files_of_options_and_flavours() -> None:
    cdp = ResctrlTree(INTEL, frozenset({"cdp", "debug", "mba_MBps"}))
    assert {"L3CODE", "L3DATA"} <= names(cdp, "/info")
    assert {"ctrl_hw_id", "mon_hw_id", "mba_MBps_event"} <= names(cdp, "/")
    assert read(cdp, "/schemata").startswith("    MB:0=4294967295;1=4294967295\n")
    write(cdp, "/schemata", "MB:0=5000\n")
    assert read(cdp, "/schemata").startswith("    MB:0=5000;1=4294967295\n")
    amd = ResctrlTree(AMD)
    assert "thread_throttle_mode" not in names(amd, "/info/MB")
    assert read(amd, "/info/L3/sparse_masks") == "1\n"
    assert read(amd, "/info/L3_MON/mbm_local_bytes_config") == "0=0x15;1=0x15;2=0x15;8=0x15\n"


@pytest.mark.parametrize(
    ("machine", "option"),
    [
        pytest.param(INTEL, "cdpl2", id="no L2 control"),
        pytest.param(AMD, "mba_MBps", id="bandwidth is not linear"),
        pytest.param(MONITOR_ONLY, "cdp", id="no control at all"),
        pytest.param(INTEL, "nonsense", id="unknown"),
    ],
)
def test_mount_refuses_an_option(machine: Machine, option: str) -> None:
    with pytest.raises(OSError) as refused:
        ResctrlTree(machine, frozenset({option}))
    assert refused.value.errno == errno.EINVAL


def test_monitor_only_machine_has_monitor_groups_only() -> None:
    tree = ResctrlTree(MONITOR_ONLY)
    assert names(tree, "/") == {"info", "tasks", "cpus", "cpus_list", "mon_groups", "mon_data"}
    with pytest.raises(PermissionError):
        tree.mkdir("/g")
    tree.mkdir("/mon_groups/m")


def test_closids_run_out_and_come_back() -> None:
    tree = ResctrlTree(few(INTEL, closids=3))
    tree.mkdir("/a")
    tree.mkdir("/b")
    with pytest.raises(OSError) as refused:
        tree.mkdir("/c")
    assert refused.value.errno == errno.ENOSPC
    assert read(tree, "/info/last_cmd_status") == "Out of CLOSIDs\n"
    tree.rmdir("/a")
    tree.mkdir("/c")
    assert read(tree, "/info/last_cmd_status") == "ok\n"


def test_rmids_run_out_and_take_no_closid_with_them() -> None:
    tree = ResctrlTree(few(INTEL, closids=3, rmids=3))
    tree.mkdir("/a")
    tree.mkdir("/a/mon_groups/m")
    for path in ("/b", "/mon_groups/m"):
        with pytest.raises(OSError) as refused:
            tree.mkdir(path)
        assert refused.value.errno == errno.ENOSPC
        assert read(tree, "/info/last_cmd_status") == "Out of RMIDs\n"
    tree.rmdir("/a/mon_groups/m")
    tree.mkdir("/b")


def test_removing_a_control_group_frees_its_monitor_groups() -> None:
    tree = ResctrlTree(few(INTEL, rmids=4))
    tree.mkdir("/a")
    tree.mkdir("/a/mon_groups/m")
    tree.mkdir("/a/mon_groups/n")
    tree.rmdir("/a")
    tree.mkdir("/b")
    tree.mkdir("/b/mon_groups/m")
    tree.mkdir("/b/mon_groups/n")


def test_freed_rmid_rests_while_its_lines_are_cached() -> None:
    tree = ResctrlTree(few(INTEL, rmids=2))
    tree.mkdir("/a")
    rmid = tree.group_at("/a").rmid
    tree.counters.set_value(rmid, "llc_occupancy", 1, 20 << 20)
    tree.rmdir("/a")
    with pytest.raises(OSError) as refused:
        tree.mkdir("/b")
    assert refused.value.errno == errno.EBUSY
    tree.counters.set_value(rmid, "llc_occupancy", 1, 4096)
    tree.mkdir("/b")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        pytest.param("/info/x", errno.ENODEV, id="in info"),
        pytest.param("/g/x", errno.EPERM, id="in a control group"),
        pytest.param("/g/mon_groups/mon_groups", errno.EPERM, id="named mon_groups"),
        pytest.param("/g/mon_data/x", errno.EPERM, id="in mon_data"),
        pytest.param("/g", errno.EEXIST, id="a second time"),
        pytest.param("/a\nb", errno.EINVAL, id="with a newline"),
        pytest.param("/none/x", errno.ENOENT, id="nowhere"),
    ],
)
def test_directory_refused(path: str, code: int) -> None:
    tree = ResctrlTree(INTEL)
    tree.mkdir("/g")
    with pytest.raises(OSError) as refused:
        tree.mkdir(path)
    assert refused.value.errno == code


@pytest.mark.parametrize("path", ["/", "/info", "/mon_groups", "/g/mon_data", "/g/mon_groups"])
def test_fixed_directory_cannot_be_removed(path: str) -> None:
    tree = ResctrlTree(INTEL)
    tree.mkdir("/g")
    with pytest.raises(PermissionError):
        tree.rmdir(path)


def test_status_tells_the_last_failure_until_the_next_command() -> None:
    tree = ResctrlTree(INTEL)
    code, status = refusal(tree, "/schemata", "L3:0=f7\n")
    assert (code, status) == (errno.EINVAL, "The mask f7 has non-consecutive 1-bits\n")
    assert refusal(tree, "/schemata", "L3:0=f")[1] == status, "no newline: not even a command"
    write(tree, "/schemata", "L3:0=f\n")
    assert read(tree, "/info/last_cmd_status") == "ok\n"


def test_mode_is_exclusive_only_without_overlap() -> None:
    tree = ResctrlTree(INTEL)
    tree.mkdir("/g")
    assert refusal(tree, "/g/mode", "exclusive\n") == (errno.EINVAL, "Schemata overlaps\n")
    write(tree, "/schemata", "L3:0=7f0;1=7f0\n")
    write(tree, "/g/schemata", "L3:0=f;1=f\n")
    write(tree, "/g/mode", "exclusive\n")
    assert read(tree, "/g/mode") == "exclusive\n"
    assert read(tree, "/info/L3/bit_usage") == "0=XXSSSSSEEEE;1=XXSSSSSEEEE\n"
    assert refusal(tree, "/g/mode", "pseudo-locksetup\n")[1] == "Unknown or unsupported mode\n"


def test_cpus_move_between_groups() -> None:
    tree = ResctrlTree(INTEL)
    tree.mkdir("/a")
    tree.mkdir("/a/mon_groups/m")
    tree.mkdir("/b")
    write(tree, "/a/cpus_list", "2-5\n")
    write(tree, "/a/mon_groups/m/cpus", "0c\n")
    assert (read(tree, "/cpus_list"), read(tree, "/a/cpus")) == ("0-1,6-7\n", "3c\n")
    write(tree, "/b/cpus_list", "3\n")
    assert (read(tree, "/a/cpus_list"), read(tree, "/a/mon_groups/m/cpus_list")) == ("2,4-5\n", "2\n")
    message = "Can only add CPUs to mongroup that belong to parent\n"
    assert refusal(tree, "/a/mon_groups/m/cpus_list", "6\n") == (errno.EINVAL, message)
    assert refusal(tree, "/cpus_list", "0\n")[1] == "Can't drop CPUs from default group\n"
    assert refusal(tree, "/b/cpus_list", "8\n")[1] == "Can only assign online CPUs\n"
    assert refusal(tree, "/b/cpus", "zz\n")[1] == "Bad CPU list/mask\n"
    tree.rmdir("/a")
    assert read(tree, "/cpus_list") == "0-2,4-7\n"


def test_control_group_reads_the_sum_of_its_monitor_groups() -> None:
    tree = ResctrlTree(INTEL)
    tree.mkdir("/g")
    tree.mkdir("/g/mon_groups/m")
    own, monitor = tree.group_at("/g").rmid, tree.group_at("/g/mon_groups/m").rmid
    tree.counters.set_value(own, "llc_occupancy", 0, 100)
    tree.counters.set_value(monitor, "llc_occupancy", 0, 11)
    assert read(tree, "/g/mon_data/mon_L3_00/llc_occupancy") == "111\n"
    assert read(tree, "/g/mon_groups/m/mon_data/mon_L3_00/llc_occupancy") == "11\n"
    assert read(tree, "/g/mon_data/mon_L3_01/llc_occupancy") == "0\n"
    tree.counters.set_unreadable(own, "llc_occupancy", 0, "Error")
    assert read(tree, "/g/mon_data/mon_L3_00/llc_occupancy") == "11\n"
    tree.counters.set_unreadable(monitor, "llc_occupancy", 0, "Unavailable")
    assert read(tree, "/g/mon_data/mon_L3_00/llc_occupancy") == "Error\n"
    assert read(tree, "/g/mon_groups/m/mon_data/mon_L3_00/llc_occupancy") == "Unavailable\n"


def test_event_configuration_restarts_the_bandwidth_counters_of_its_domain() -> None:
    tree = ResctrlTree(AMD)
    for domain in (0, 8):
        tree.counters.set_value(0, "mbm_local_bytes", domain, 500)
    write(tree, "/info/L3_MON/mbm_total_bytes_config", "8=0x33\n")
    assert read(tree, "/info/L3_MON/mbm_total_bytes_config") == "0=0x7f;1=0x7f;2=0x7f;8=0x33\n"
    assert read(tree, "/mon_data/mon_L3_08/mbm_local_bytes") == "Unavailable\n"
    assert read(tree, "/mon_data/mon_L3_08/mbm_local_bytes") == "0\n"
    assert read(tree, "/mon_data/mon_L3_00/mbm_local_bytes") == "500\n"
    message = "Invalid event configuration: max valid mask is 0x7f\n"
    assert refusal(tree, "/info/L3_MON/mbm_total_bytes_config", "0=0xff\n")[1] == message


def test_monitor_group_moves_to_another_control_group() -> None:
    tree = ResctrlTree(INTEL)
    for path in ("/a", "/b", "/a/mon_groups/m"):
        tree.mkdir(path)
    rmid = tree.group_at("/a/mon_groups/m").rmid
    tree.rename("/a/mon_groups/m", "/b/mon_groups/n")
    assert tree.group_at("/b/mon_groups/n").rmid == rmid
    with pytest.raises(PermissionError):
        tree.rename("/a", "/c")
    assert read(tree, "/info/last_cmd_status") == "Source must be a MON group\n"
    write(tree, "/b/cpus_list", "3\n")
    write(tree, "/b/mon_groups/n/cpus_list", "3\n")
    with pytest.raises(PermissionError):
        tree.rename("/b/mon_groups/n", "/a/mon_groups/n")


def test_threshold_is_rounded_to_what_hardware_counts() -> None:
    tree = ResctrlTree(INTEL)
    write(tree, "/info/L3_MON/max_threshold_occupancy", "200000\n")
    assert read(tree, "/info/L3_MON/max_threshold_occupancy") == f"{3 * 65536}\n"
    with pytest.raises(OSError):
        write(tree, "/info/L3_MON/max_threshold_occupancy", "999999999\n")


def test_bandwidth_flows_at_a_rate() -> None:
    now = [0.0]
    tree = ResctrlTree(INTEL)
    tree.counters._clock = lambda: now[0]
    tree.counters.set_value(0, "mbm_total_bytes", 0, 1000)
    tree.counters.set_rate(0, "mbm_total_bytes", 0, 500.0)
    now[0] = 2.0
    assert read(tree, "/mon_data/mon_L3_00/mbm_total_bytes") == "2000\n"
