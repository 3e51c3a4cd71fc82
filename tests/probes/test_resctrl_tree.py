"""The kernel's resctrl files as made by hand: layouts and readings that the mounted stand-in does not have."""

import math
from pathlib import Path

import pytest

from probes.resctrl_tree import MonitoredGroup, ResctrlTree, control_of


def _write(root: Path, files: dict[str, str]) -> ResctrlTree:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return ResctrlTree(root)


def test_groups_are_listed_root_first_and_the_kernels_own_directories_are_none(tmp_path: Path) -> None:
    tree = _write(
        tmp_path,
        {
            "info/L3_MON/num_rmids": "16\n",
            "mon_groups/job/tasks": "",
            "batch/tasks": "",
            "batch/mon_groups/koord-5/tasks": "",
            "mon_data/mon_L3_00/llc_occupancy": "1\n",
        },
    )
    assert [group.name for group in tree.groups()] == ["/", "batch", "mon_groups/job", "batch/mon_groups/koord-5"]
    assert tree.monitor_count() == 16


@pytest.mark.parametrize("text", ["Unavailable", "Error", "Unassigned", ""])
def test_what_is_no_number_is_nan(tmp_path: Path, text: str) -> None:
    tree = _write(tmp_path, {"mon_data/mon_L3_00/mbm_total_bytes": f"{text}\n"})
    readings = tree.read(MonitoredGroup(""))
    assert readings is not None
    assert math.isnan(readings["mbm_total_bytes", 0])


def test_every_domain_is_read_once_and_parts_of_one_are_not_added(tmp_path: Path) -> None:
    tree = _write(
        tmp_path,
        {
            "mon_data/mon_L3_00/llc_occupancy": "100\n",
            "mon_data/mon_L3_00/mon_sub_L3_00/llc_occupancy": "60\n",
            "mon_data/mon_L3_08/llc_occupancy": "7\n",
            "mon_data/mon_MB_00/something": "5\n",
        },
    )
    assert tree.read(MonitoredGroup("")) == {("llc_occupancy", 0): 100.0, ("llc_occupancy", 8): 7.0}


def test_what_is_gone_is_none(tmp_path: Path) -> None:
    tree = ResctrlTree(tmp_path)
    assert tree.read(MonitoredGroup("gone")) is None
    assert tree.tasks(MonitoredGroup("gone")) is None
    assert tree.monitor_count() is None
    tree.remove(MonitoredGroup("", "koord-9"))


def test_threads_belong_to_the_control_group_that_claims_them(tmp_path: Path) -> None:
    claims = _write(tmp_path, {"tasks": "1\n", "batch/tasks": "2\n3\n", "other/tasks": ""}).claims()
    assert claims == {"batch": frozenset({2, 3}), "other": frozenset()}
    assert control_of(frozenset({3, 9}), claims) == "batch"
    assert control_of(frozenset({1}), claims) == ""
    assert control_of(frozenset(), claims) == ""


def test_only_own_groups_can_be_removed(tmp_path: Path) -> None:
    (tmp_path / "mon_groups/theirs").mkdir(parents=True)
    with pytest.raises(ValueError, match="theirs is not a group of ours"):
        ResctrlTree(tmp_path).remove(MonitoredGroup("", "theirs"))
    assert (tmp_path / "mon_groups/theirs").is_dir()
