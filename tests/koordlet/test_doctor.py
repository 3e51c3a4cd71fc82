"""Findings about the kernel, from files that are made up."""

from pathlib import Path

import pytest

from koordlet.doctor import Finding, has_cpu_blame, kernel_finding, scheduler_findings
from koordlet.host.files import HostTree
from tests.trees import make_tree

STATE = "sys/kernel/sched_ext/state"


@pytest.mark.parametrize("files", [{}, {STATE: "disabled\n"}], ids=["kernel-without", "none-loaded"])
def test_the_kernels_own_scheduler_is_no_finding(tmp_path: Path, files: dict[str, str]) -> None:
    make_tree(tmp_path, files)
    assert scheduler_findings(HostTree(tmp_path)) == []


@pytest.mark.parametrize(
    ("files", "named"),
    [
        pytest.param({"sys/kernel/sched_ext/root/ops": "lavd_1.0.9\n"}, "lavd_1.0.9", id="named"),
        pytest.param({}, "of an unknown name", id="nameless"),
    ],
)
def test_a_scheduler_in_bpf_is_told_with_what_it_spoils(tmp_path: Path, files: dict[str, str], named: str) -> None:
    make_tree(tmp_path, {STATE: "enabled\n", **files})
    (finding,) = scheduler_findings(HostTree(tmp_path))
    assert (finding.name, finding.available) == ("cpu-blame-by-cpu", False)
    assert f"({named})" in finding.reason
    assert finding.remedy


@pytest.mark.parametrize("release", ["6.1.0-28-amd64", "6.12.1", "7.2.0-rc1", "10.0", "unknown"])
def test_a_kernel_that_is_new_enough(release: str) -> None:
    found = kernel_finding(release)
    assert (found.available, found.reason, found.remedy) == (True, release, "")


@pytest.mark.parametrize("release", ["5.10.0-33-amd64", "6.0.19", "4.18.0-553.el8.x86_64"])
def test_an_older_kernel_is_refused(release: str) -> None:
    found = kernel_finding(release)
    assert not found.available
    assert release in found.reason
    assert "6.1" in found.remedy
    assert not has_cpu_blame([found, Finding("cpu", available=True, reason="")])
    assert has_cpu_blame([kernel_finding("6.1.0"), Finding("cpu", available=True, reason="")])
