"""A user who makes 4,100 directories, nested and long ones, beside services: what that costs is his own.

His directory was given to him (systemd's delegation): below it 128 directories are known, whatever he makes.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.frame import HOST
from koordlet.agent.agent import Agent
from koordlet.agent.probe_set import ProbeSet
from koordlet.config import AgentSettings
from koordlet.host.cgroups.walk import SHARE_OF_OWNER
from tests.koordlet.enforcer.hosts import FakeHost
from tests.koordlet.test_hostile_trees import EMPTY, LONG_LEVELS, STAT, nest, remove
from tests.trees import make_tree

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory away")
USER = "/user.slice/user-1000.slice"
SERVICES = [f"/shop/service-{number}" for number in range(200)]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeHost]:
    made = FakeHost(tmp_path_factory.mktemp("node"))
    user = made.root / "cg" / USER.strip("/")
    user.mkdir(parents=True)
    nest(user, "x" * 250, LONG_LEVELS)
    nest(user, "d", 600)
    for number in range(EMPTY):
        make_tree(user / f"empty-{number}", {"cpu.stat": STAT.format(0)})
    os.chown(user, 1000, -1)
    for path in SERVICES:
        make_tree(made.root / "cg" / path.strip("/"), {"cpu.stat": STAT.format(0)})
    yield made
    remove(user, "x" * 250, LONG_LEVELS)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_rows_and_descriptors_are_those_of_his_share(host: FakeHost) -> None:
    before = open_files()
    agent = Agent(AgentSettings(root=str(host.root)), ProbeSet({}, {}, {}, {}))
    try:
        frame = agent.collect(everything=True)
        agent.collect(everything=True)
        opened = open_files() - before
    finally:
        agent.close()
    paths = {info.path for info in frame.cgroups}
    assert paths.issuperset(SERVICES)
    his = [path for path in paths if path.startswith(f"{USER}/")]
    assert len(his) == SHARE_OF_OWNER
    assert opened <= 16 * len(paths), "of each cgroup its directory and some files"
    passed_over = frame.tables[HOST].columns["agent.cgroups_passed_over"][0]
    assert passed_over > 0


def test_a_service_that_comes_later_is_known_at_once(host: FakeHost) -> None:
    agent = Agent(AgentSettings(root=str(host.root)), ProbeSet({}, {}, {}, {}))
    try:
        agent.collect()
        for number in range(50):
            Path(host.root, "cg", USER.strip("/"), f"late-{number}").mkdir()
        make_tree(host.root / "cg/shop/late", {"cpu.stat": STAT.format(0)})
        frame = agent.collect()
    finally:
        agent.close()
    assert "/shop/late" in {info.path for info in frame.cgroups}
    assert len([info for info in frame.cgroups if info.path.startswith(f"{USER}/")]) == SHARE_OF_OWNER
