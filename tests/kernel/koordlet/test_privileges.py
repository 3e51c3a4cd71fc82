"""Linux capabilities: each feature works with exactly those of docs/deploying.md, and not with one of them less.

The agent runs as root with a bounding set, as a container runtime starts it.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cgroups import CgroupTree
from tests.waiting import alive, wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.beside(together=True)]

ROOT = Path(__file__).parents[3]
VALUES = yaml.safe_load((ROOT / "deploy/chart/values.yaml").read_text())["koordlet"]["capabilities"]
OBSERVE = tuple(name.lower() for name in VALUES["observe"])
KERNEL = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
if KERNEL < (5, 11):
    OBSERVE = (*OBSERVE, "sys_resource")  # BPF's memory still counts against the limit on locked memory
NOBODY = 65534
MOST_PARANOID = 2
"""kernel.perf_event_paranoid of the kernel itself; Debian's 3 keeps PERFMON alone from opening perf events."""
SNAPSHOT = [sys.executable, "-m", "koordlet", "snapshot", "--seconds", "0.2", "--json"]


def limited(capabilities: tuple[str, ...], command: list[str]) -> list[str]:
    """The command with these capabilities and no others; without any means of getting more."""
    bounding = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    return ["setpriv", "--no-new-privs", "--inh-caps=-all", f"--bounding-set={bounding}", *command]


def unsupported(capabilities: tuple[str, ...] | None) -> dict[str, str]:
    """What a snapshot could not measure, with the reason; `None` runs with all that this test has."""
    command = SNAPSHOT if capabilities is None else limited(capabilities, SNAPSHOT)
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found: dict[str, str] = json.loads(done.stdout)["host"]["unsupported"]
    return found


@pytest.fixture(scope="module")
def as_root(running_kernel: Any) -> dict[str, str]:
    return unsupported(None)


def test_the_observing_set_measures_all_that_root_can(as_root: dict[str, str]) -> None:
    lost = unsupported(OBSERVE).keys() - as_root.keys()
    paranoid = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    assert lost == ({"stacks"} if paranoid > MOST_PARANOID else set())


@pytest.mark.parametrize("missing", ["bpf", "perfmon"])
def test_nothing_of_the_observing_set_is_for_nothing(as_root: dict[str, str], missing: str) -> None:
    fewer = tuple(name for name in OBSERVE if name != missing)
    lost = unsupported(fewer).keys() - as_root.keys()
    assert {"cpu", "memory", "blockio"} <= lost


def test_without_any_capability_the_kernel_counters_are_still_read(as_root: dict[str, str]) -> None:
    refused = unsupported(())
    assert not {"cpustat", "memstat", "iostat", "pressure", "hostwide"} & (refused.keys() - as_root.keys())


def test_the_agent_runs_and_ends_with_the_observing_set(tree: CgroupTree, tmp_path: Path) -> None:
    config, log = tmp_path / "koordlet.toml", tmp_path / "log"
    config.write_text(
        f'interval_seconds = 0.2\n[metrics]\nport = 0\n[detection]\nbaselines_file = ""\n'
        f'[enforcer]\nstate_dir = "{tmp_path}/state"\naudit_file = ""\n'
    )
    command = [sys.executable, "-m", "koordlet", "run", "--standalone", "--config", str(config)]
    with log.open("w") as stream:
        process = subprocess.Popen(limited(OBSERVE, command), stderr=stream, cwd=ROOT)
    try:
        wait_for(lambda: re.search(r"measuring with .*\bcpu\b", log.read_text()), check=alive(process, log))
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert "Traceback" not in log.read_text()


@dataclass(frozen=True)
class Feature:
    """A feature of enforcing: a program that fails without the capabilities, given a pid of another user."""

    program: str
    needs: tuple[str, ...]


FEATURES = {
    "weights-quotas-and-cpusets": Feature("open(sys.argv[2], 'w').write(sys.argv[3])", ()),
    "oom-score-raised": Feature("open(f'/proc/{pid}/oom_score_adj', 'w').write('500')", ("dac_override",)),
    "processes-ended-outside-of-kubernetes": Feature("os.kill(pid, 15)", ("kill",)),
    "traffic-classes": Feature(
        "from pyroute2 import IPRoute\n"
        "with IPRoute() as ip: ip.tc('add', 'htb', ip.link_lookup(ifname=sys.argv[4])[0], 0x10000)",
        ("net_admin",),
    ),
}

OUTSIDE_OF_THE_CHART = {"kill"}
"""In a cluster pods are evicted by the API server, never ended by the agent."""


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process of another user, as most containers have them."""
    process = subprocess.Popen(["sleep", "300"], user=NOBODY, group=NOBODY, extra_groups=[])
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture
def link() -> Iterator[str]:
    """A link of its own."""
    name = f"kp{os.getpid()}"[:15]
    made = [["ip", "link", "add", name, "type", kind] for kind in ("bridge", "dummy", "ifb")]
    if not any(subprocess.run(command, check=False, capture_output=True).returncode == 0 for command in made):
        pytest.skip("the kernel has no virtual link: neither bridge nor dummy nor ifb")
    yield name
    subprocess.run(["ip", "link", "delete", name], check=True)


NUMBERS = {"dac_override": 1, "kill": 5, "net_admin": 12, "sys_resource": 24}
"""Of linux/capability.h."""


def in_bounding_set(capability: str) -> bool:
    status = Path("/proc/self/status").read_text()
    (bounding,) = re.findall(r"^CapBnd:\s+(\w+)$", status, re.MULTILINE)
    return bool(int(bounding, 16) >> NUMBERS[capability] & 1)


def tried(feature: Feature, capabilities: tuple[str, ...], arguments: list[str]) -> subprocess.CompletedProcess[str]:
    program = f"import os, sys\npid = int(sys.argv[1])\n{feature.program}"
    command = limited(capabilities, [sys.executable, "-c", program, *arguments])
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", sorted(FEATURES))
def test_a_feature_of_enforcing_works_with_exactly_its_capabilities(
    name: str, tree: CgroupTree, stranger: int, link: str
) -> None:
    feature = FEATURES[name]
    beyond = [each for each in feature.needs if not in_bounding_set(each)]
    if beyond:
        pytest.skip(f"this machine does not grant {', '.join(beyond).upper()} itself")
    with tree.make_cgroup("privilege") as cgroup:
        files = [each / name for each in cgroup.dirs for name in ("cpu.weight", "cpu.shares") if (each / name).exists()]
        arguments = [str(stranger), str(files[0]), "200", link]
        for missing in feature.needs:
            fewer = tuple(each for each in feature.needs if each != missing)
            assert tried(feature, fewer, arguments).returncode != 0, f"works without {missing}"
        done = tried(feature, feature.needs, arguments)
        assert done.returncode == 0, done.stderr
    in_chart = {each.lower() for group in VALUES.values() for each in group}
    assert {*feature.needs} - OUTSIDE_OF_THE_CHART <= in_chart
