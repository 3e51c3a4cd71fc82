"""A NodeSLO in the real agent: best-effort work under real load gets what the formula leaves, and all goes back."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.intents import Knob
from koordlet.host.cgroups.hierarchies import find_hierarchies
from koordlet.host.cgroups.scratch import ScratchCgroup
from koordlet.host.files import HostTree
from koordlet.host.knobs.current import current
from koordlet.host.knobs.knobs import Knobs
from tests.waiting import wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

ROOT = "/kubepods.slice"
DIRECTORY = f"{ROOT}/kubepods-besteffort.slice"
POD = f"{DIRECTORY}/kubepods-besteffort-pod12345678_1234_1234_1234_123456789012.slice"
PATIENCE_SECONDS = 90.0
SETTINGS = """
[[qos]]
match = "{root}/*besteffort*"
class = "BE"
[metrics]
enabled = false
[enforcer]
enabled = true
only = ["{root}/*"]
strategies = ["cpu_suppress"]
state_dir = "{directory}"
audit_file = "{directory}/audit.jsonl"
[strategies.node_slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressThresholdPercent = 65
cpuSuppressPolicy = "cfsQuota"
"""


@pytest.fixture
def pod() -> Iterator[ScratchCgroup]:
    if (find_hierarchies(HostTree(Path("/"))).cpu / ROOT.strip("/")).exists():
        pytest.skip(f"{ROOT} is there: a kubelet may run on this host")
    made = [ScratchCgroup(path) for path in (ROOT, DIRECTORY, POD)]
    try:
        yield made[-1]
    finally:
        for cgroup in reversed(made):
            cgroup.remove()


def quota() -> str:
    return current(Knobs(HostTree(Path("/"))), Knob.CPU_MAX, DIRECTORY).split()[0]


def test_best_effort_work_is_suppressed_and_freed_again(pod: ScratchCgroup, tmp_path: Path) -> None:
    config = tmp_path / "koordlet.toml"
    config.write_text(SETTINGS.format(root=ROOT, directory=tmp_path))
    hog = pod.spawn(["sh", "-c", "while :; do :; done"])
    program = [sys.executable, "-m", "koordlet", "run", "--standalone", "--config", str(config)]
    agent = subprocess.Popen(program, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: quota() != "max", PATIENCE_SECONDS)
        given = int(quota())
        assert 2_000 <= given <= 65_000 * (os.cpu_count() or 1)
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.communicate(timeout=60)
        pod.kill()
        hog.wait()
    assert agent.returncode == 0
    assert quota() == "max"
    assert '"strategy":"cpu_suppress"' in (tmp_path / "audit.jsonl").read_text()
