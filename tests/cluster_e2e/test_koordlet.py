"""The agent beside a real kubelet: it sees what the kubelet runs, and writes nothing when it is not asked to."""

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster_e2e.cgroup_layout import TOP
from tests.cluster_e2e.conftest import Pods, container_id
from tests.cluster_e2e.test_node import BURSTABLE, GUARANTEED, SLEEP
from tests.waiting import PATIENCE, alive, wait_for

pytestmark = pytest.mark.cluster

KOORDLET = [sys.executable, "-m", "koordlet"]
BUSY = ["sh", "-c", "while :; do :; done" if PATIENCE == 1 else "while :; do sleep 1; done"]
"""An emulated machine has no CPU to spare: kubelet and runtime would wait for minutes."""
KNOBS = ("cpu/cpu.shares", "cpu/cpu.cfs_quota_us", "cpu/cpu.idle", "memory/memory.limit_in_bytes", "cpuset/cpuset.cpus")
KNOBS_V2 = ("cpu.weight", "cpu.max", "cpu.idle", "memory.max", "memory.high", "cpuset.cpus")
SETTINGS = """
interval_seconds = 0.5
[metrics]
port = 0
[enforcer]
state_dir = "{directory}/state"
audit_file = ""
[detection]
baselines_file = ""
"""


@contextmanager
def agent_running(folder: Path) -> Iterator[int]:
    """The agent, observing; yields its metrics port."""
    config, log = folder / "koordlet.toml", folder / "log"
    config.write_text(SETTINGS.format(directory=folder))
    with log.open("w") as stream:
        process = subprocess.Popen([*KOORDLET, "run", "--standalone", "--config", str(config)], stderr=stream)
    try:
        served = wait_for(
            lambda: re.search(r"metrics on http://[\d.]+:(\d+)/", log.read_text()), check=alive(process, log)
        )
        yield int(served.group(1))
    finally:
        process.terminate()
        process.wait(30)


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
        text: str = response.read().decode()
        return text


def settings_below(root: Path) -> dict[str, str]:
    """Every knob of every cgroup of pods."""
    names = [*KNOBS, *KNOBS_V2]
    found = {}
    for name in names:
        controller, _, file = name.rpartition("/")
        for path in (root / controller / TOP).rglob(file):
            found[str(path)] = path.read_text()
    return found


def test_a_snapshot_has_the_containers_of_every_class(pods: Pods) -> None:
    wanted = {
        container_id(pods.run(name, SLEEP, resources))
        for name, resources in (("guaranteed", GUARANTEED), ("burstable", BURSTABLE), ("best-effort", {}))
    }
    command = [*KOORDLET, "snapshot", "--seconds", "0.5", "--json"]
    measured = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    paths = [row["path"] for row in measured["cgroups"]]
    assert {each for each in wanted if any(path.endswith(each) for path in paths)} == wanted


def test_the_observing_agent_follows_pods_and_changes_no_setting(pods: Pods, tmp_path: Path) -> None:
    with agent_running(tmp_path) as port:
        before = container_id(pods.run("before", BUSY))
        wait_for(lambda: before in scrape(port), interval_seconds=0.5)
        settings = settings_below(Path("/sys/fs/cgroup"))
        after = container_id(pods.run("after", BUSY))
        wait_for(lambda: after in scrape(port), interval_seconds=0.5)
    changed = {path: text for path, text in settings_below(Path("/sys/fs/cgroup")).items() if path in settings}
    # The kubelet itself raises the shares of the best-effort directory's parent with the number of pods.
    assert {path for path, text in changed.items() if text != settings[path]} <= {
        path for path in settings if path.endswith("/kubepods/cpu.shares")
    }
    assert settings
