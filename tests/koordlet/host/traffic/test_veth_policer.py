"""Network namespaces of a v1 cgroup, on real processes and made directories."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from koordlet.host.traffic import pod_links, veth_policer
from koordlet.host.traffic.ingress import MAX, OF_LINKS, CgroupPolicer, policer_program
from koordlet.host.traffic.pod_links import namespaces_below, own_namespace, shared_namespaces
from koordlet.host.traffic.policers import policer_of
from koordlet.host.traffic.veth_policer import VethPolicer, why_not


@pytest.fixture(autouse=True)
def _sees_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests run as any user: what is looked at here is the user's own."""
    see(monkeypatch, allowed=True)


def see(monkeypatch: pytest.MonkeyPatch, *, allowed: bool) -> None:
    for module in (pod_links, veth_policer):
        monkeypatch.setattr(module, "sees_namespaces", lambda: allowed)


def cgroup(directory: Path, *pids: int) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tasks").touch()
    (directory / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    return directory


def test_the_hierarchy_says_where_a_cgroup_is_policed(tmp_path: Path) -> None:
    unified, v1 = tmp_path / "unified", tmp_path / "cpu"
    unified.mkdir()
    cgroup(v1)
    assert isinstance(policer_of(unified / "pod"), CgroupPolicer)
    assert isinstance(policer_of(v1 / "gone/too"), VethPolicer)
    assert isinstance(policer_of(cgroup(v1 / "pod")), VethPolicer)


def test_each_namespace_is_found_once_and_processes_that_ended_are_passed_over(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    pod = cgroup(tmp_path / "pod")
    cgroup(pod / "sandbox", os.getpid())
    cgroup(pod / "container", os.getpid())
    cgroup(pod / "ended", ended.pid)
    assert namespaces_below(pod) == {own_namespace(): os.getpid()}
    assert namespaces_below(tmp_path / "gone") == {}


def test_a_namespace_with_a_process_elsewhere_is_shared(tmp_path: Path) -> None:
    pod = cgroup(tmp_path / "pod", os.getpid())
    assert shared_namespaces(pod, [own_namespace()]) == {own_namespace()}
    everybody = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    assert shared_namespaces(cgroup(tmp_path / "all", *everybody), [1]) == set()
    assert shared_namespaces(pod, []) == set()


def test_where_namespaces_of_others_may_not_be_seen_none_counts_as_the_cgroups_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    see(monkeypatch, allowed=False)
    everybody = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    assert shared_namespaces(cgroup(tmp_path / "all", *everybody), [1]) == {1}
    refused = why_not(cgroup(tmp_path / "pod"))
    assert refused is not None
    assert "CAP_SYS_PTRACE" in refused.remedy


def test_the_right_to_see_namespaces_is_a_capability() -> None:
    drop = "import ctypes, os; ctypes.CDLL(None).prctl(24, 19, 0, 0, 0); os.execv('/proc/self/exe', ['python', *ASK])"
    ask = ["-c", "from koordlet.host.traffic.pod_links import sees_namespaces; print(sees_namespaces())"]
    done = subprocess.run([sys.executable, "-c", f"ASK = {ask}; {drop}"], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_cgroup_without_a_process_may_get_some(tmp_path: Path) -> None:
    assert why_not(cgroup(tmp_path / "pod")) is None
    refused = why_not(cgroup(tmp_path / "pod", os.getpid()))
    assert refused is not None
    assert "host's own network" in refused.reason


def test_to_a_process_that_set_none_there_is_none(tmp_path: Path) -> None:
    pod = cgroup(tmp_path / "pod")
    assert VethPolicer(pod).read() == {MAX}
    assert VethPolicer(tmp_path / "gone").read() is None


def test_a_packet_that_is_not_dropped_goes_on_to_the_programs_of_others() -> None:
    program = policer_program(125_000, 7, 8, OF_LINKS)
    returned = [
        int.from_bytes(program[at + 4 : at + 8], "little", signed=True)
        for at in range(0, len(program), 8)
        if program[at] == 0xB7 and program[at + 1] == 0
    ]
    assert returned == [-1, 2]
