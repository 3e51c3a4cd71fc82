"""Capabilities of a host and the values of single cgroups, as they are read for the response."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from api.frame import CgroupInfo
from api.intents import Knob
from koordlet.control.capabilities import CapabilityReader
from koordlet.host.knobs.knobs import Knobs
from koordlet.response.host_capabilities import CgroupReads
from tests.koordlet.enforcer.hosts import FakeHost
from tests.trees import make_tree


def test_disks_under_io_cost_heed_weights(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, 2)
    rules = "8:0 enable=1 ctrl=auto rpct=0.00\n8:16 enable=0 ctrl=auto rpct=0.00\n"
    host.file("/", "io.cost.qos").write_text(rules)
    assert CapabilityReader(host.tree, Knobs(host.tree), "/agent").host(()).weighing_disks == {"8:0"}


def test_on_cgroup_v1_there_is_no_io_cost(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, 1)
    assert CapabilityReader(host.tree, Knobs(host.tree), "/agent").host(()).weighing_disks == frozenset()


def test_cpus_and_quotas_are_read_for_the_named_cgroups_only(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, 2)
    for path in ("/web", "/hog", "/other"):
        host.make(path)
    host.file("/hog", "cgroup.procs").write_text("42\n")
    make_tree(tmp_path, {"proc/42/status": "Name:\thog\nCpus_allowed_list:\t0-1,3\n"})
    host.file("/web", "cpu.max").write_text("50000 100000\n")
    reader = CapabilityReader(host.tree, Knobs(host.tree), "/agent")
    reads = CgroupReads(frozenset({"/hog", "/web", "/gone"}), frozenset({"/web", "/hog", "/gone"}))
    read = reader.with_cgroups(reader.host(()), reads)
    assert read.cgroup_cpus == {"/hog": {0, 1, 3}, "/web": frozenset(), "/gone": frozenset()}
    assert read.cgroup_quota_us == {"/web": 50_000, "/hog": None, "/gone": None}
    assert reader.host(()).cgroup_cpus == {}


@pytest.mark.parametrize(
    ("version", "file", "texts", "weights"),
    [
        pytest.param(2, "cpu.weight", {"/web": "200\n", "/idle": "0\n"}, [200.0, 3 * 100 / 1024], id="v2"),
        pytest.param(1, "cpu.shares", {"/web": "2048\n", "/idle": "2\n"}, [200.0, 3 * 100 / 1024], id="v1"),
    ],
)
def test_weights_are_those_before_the_response_lowered_them(
    tmp_path: Path, version: int, file: str, texts: dict[str, str], weights: list[float]
) -> None:
    host = FakeHost(tmp_path, version)
    cgroups = tuple(CgroupInfo(number, path, path) for number, path in enumerate([*texts, "/gone"], start=1))
    for path, text in texts.items():
        host.make(path)
        host.file(path, file).write_text(text)
    reader = CapabilityReader(host.tree, Knobs(host.tree), "/agent")
    assert np.allclose(reader.weights(cgroups), [*weights, np.nan], equal_nan=True)
    host.file("/web", file).write_text("2\n")
    held = [reader.weights(cgroups, {"/web"})[0] for _ in range(130)]
    assert set(held) == {200.0}
    assert min(reader.weights(cgroups)[0] for _ in range(130)) < 3.0


def test_a_knob_is_there_if_any_directory_of_the_host_has_it(tmp_path: Path) -> None:
    """On cgroup v1 with systemd /system.slice is the first and in no cpuset hierarchy; pods are."""
    host = FakeHost(tmp_path, 1)
    for path in ("/system.slice", "/kubepods"):
        host.make(path)
    shutil.rmtree(tmp_path / "cg/cpuset/system.slice")
    cgroups = tuple(CgroupInfo(number, path, path) for number, path in enumerate(["/system.slice", "/kubepods"], 1))
    found = CapabilityReader(host.tree, Knobs(host.tree), "/agent").host(cgroups)
    assert Knob.CPUSET_CPUS in found.knobs
    alone = CapabilityReader(host.tree, Knobs(host.tree), "/agent").host(cgroups[:1])
    assert Knob.CPUSET_CPUS not in alone.knobs
