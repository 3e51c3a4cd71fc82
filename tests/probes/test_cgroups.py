"""The cpu hierarchy as directories, from made trees."""

from pathlib import Path

import pytest

from api.plugin import Unsupported
from probes.cgroups import cgroup_id, cpu_mount, matching, threads_below
from probes.resctrl import MATCH


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        pytest.param("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", "/sys/fs/cgroup", id="v2"),
        pytest.param(
            "c /a/unified cgroup2 rw 0 0\nc /a/cpu cgroup rw,cpu,cpuacct 0 0\n", "/a/cpu", id="v1-beside-unified"
        ),
    ],
)
def test_the_cpu_hierarchy_is_found(mounts: str, expected: str) -> None:
    assert cpu_mount(mounts) == Path(expected)


def test_a_host_without_the_cpu_controller_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="cpu controller"):
        cpu_mount("c /a/memory cgroup rw,memory 0 0\n")


@pytest.mark.parametrize(
    ("path", "is_pod"),
    [
        pytest.param("kubepods/burstable/pod12", True, id="burstable-pod"),
        pytest.param("kubepods/pod12", True, id="guaranteed-pod"),
        pytest.param("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12.slice", True, id="systemd-pod"),
        pytest.param("kubepods.slice/kubepods-burstable.slice", False, id="systemd-qos-class"),
        pytest.param("kubepods/burstable", False, id="qos-class"),
        pytest.param("system.slice/redis.service", True, id="service"),
        pytest.param("docker/0123abcd", True, id="container"),
        pytest.param("init.scope", False, id="init-scope"),
    ],
)
def test_default_globs(tmp_path: Path, path: str, is_pod: bool) -> None:
    (tmp_path / path / "inner").mkdir(parents=True)
    assert list(matching(tmp_path, MATCH.split(","))) == ([tmp_path / path] if is_pod else [])


def test_threads_of_a_subtree_are_listed_on_v1_and_v2(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "tasks").write_text("1\n2\n")
    (tmp_path / "inner/cgroup.threads").write_text("3\n")
    assert threads_below(tmp_path) == {1, 2, 3}
    assert threads_below(tmp_path / "gone") == frozenset()


def test_an_id_is_the_directorys_inode_and_zero_once_it_is_gone(tmp_path: Path) -> None:
    assert cgroup_id(tmp_path) == tmp_path.stat().st_ino
    assert cgroup_id(tmp_path / "gone") == 0
