"""A cache culprit squeezed stepwise, from the verdict to the schemata of a resctrl that behaves like the kernel's."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.verdicts import How
from koordlet.control.capabilities import caches
from koordlet.enforcer.lifecycle import open_enforcer
from koordlet.host.knobs.knobs import Knobs
from koordlet.response.host_capabilities import HostCapabilities
from koordlet.response.policy import ResponsePolicy
from tests.koordlet.enforcer.hosts import FakeHost
from tests.koordlet.response.ticks import HOG, look, verdict_on
from tests.resctrl_fs.client import MountedResctrl, mounted
from tests.resctrl_fs.hardware import INTEL

pytestmark = pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="no /dev/fuse")


@pytest.fixture
def fs(tmp_path: Path) -> Iterator[MountedResctrl]:
    with mounted(INTEL, tmp_path / "resctrl") as made:
        yield made


@pytest.fixture
def host(tmp_path: Path) -> Iterator[FakeHost]:
    made = FakeHost(tmp_path / "host", 2)
    for path in ("/batch", HOG, "/online", "/online/web"):
        made.make(path)
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:
        for name in ("cgroup.procs", "cgroup.threads"):
            made.file(HOG, name).write_text(f"{process.pid}\n")
        yield made
        os.kill(process.pid, signal.SIGKILL)


def groups(fs: MountedResctrl) -> set[str]:
    return {path.name for path in fs.path.iterdir() if path.is_dir()} - {"info", "mon_groups", "mon_data"}


def test_the_squeeze_narrows_stepwise_and_is_put_back(fs: MountedResctrl, host: FakeHost) -> None:
    offered = caches(fs.path)
    assert offered.l3_domains == (0, 1)
    assert offered.bandwidth_domains
    before = (fs.path / "schemata").read_text()
    response = ResponsePolicy()
    enforcer = open_enforcer(host.settings(), host.tree, knobs=Knobs(host.tree, fs.path), now=host.clock)
    seen: list[str] = []
    accusation = verdict_on(resource="cache", how=How.CORRELATED)
    for second in range(14):
        observation = look(float(second), [accusation], capabilities=HostCapabilities(caches=offered, cpus=(0, 1)))
        enforcer.step(response.step(observation), now=host.later(1))
        for name in groups(fs):
            text = (fs.path / name / "schemata").read_text()
            if (fs.path / name / "tasks").read_text().strip() and text not in seen:
                seen.append(text)
    widths = [int(text.partition("L3:0=")[2].partition(";")[0], 16).bit_count() for text in seen]
    assert len(seen) == 3
    assert widths == sorted(widths, reverse=True)
    enforcer.close(host.clock)
    assert groups(fs) == set()
    assert (fs.path / "schemata").read_text() == before
