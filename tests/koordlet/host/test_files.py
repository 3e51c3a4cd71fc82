"""Readers of kernel files: absent is a value, malformed is an error or a counted row."""

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from api.plugin import Unsupported
from koordlet.host.cgroups.hierarchies import find_hierarchies
from koordlet.host.cgroups.walk import CgroupWalk
from koordlet.host.files import HostError, HostTree, KeptFiles, flat_keyed
from tests.trees import make_tree

V1 = """\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
"""
UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(
    ("mounts", "version", "hybrid", "cpu"),
    [
        pytest.param(V1, 1, False, "sys/fs/cgroup/cpu,cpuacct", id="v1"),
        pytest.param(V1 + UNIFIED, 1, True, "sys/fs/cgroup/cpu,cpuacct", id="hybrid"),
        pytest.param(
            "41 31 0:38 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n", 2, False, "sys/fs/cgroup", id="v2"
        ),
    ],
)
def test_hierarchies(tmp_path: Path, mounts: str, version: int, hybrid: bool, cpu: str) -> None:
    found = find_hierarchies(HostTree(make_tree(tmp_path, {"proc/self/mountinfo": mounts})))
    assert (found.version, found.hybrid, found.cpu) == (version, hybrid, tmp_path / cpu)


def test_no_cgroups_is_unsupported_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(Unsupported) as caught:
        find_hierarchies(HostTree(make_tree(tmp_path, {"proc/self/mountinfo": ""})))
    assert "mount" in caught.value.remedy


def test_absent_is_none_and_unreadable_is_an_error_with_its_path(tmp_path: Path) -> None:
    tree = HostTree(make_tree(tmp_path, {"proc": {"a-directory": {}}}))
    assert tree.text("/proc/nothing") is None
    with pytest.raises(HostError, match=r"read .*a-directory"):
        tree.text("/proc/a-directory")


def test_kept_files_are_read_anew_and_survive_removal(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a": {"cpu.stat": "x 1\n"}})
    files = KeptFiles(tmp_path, "cpu.stat")
    assert files.read("/a") == b"x 1\n"
    (tmp_path / "a/cpu.stat").write_text("x 2\n")
    assert files.read("/a") == b"x 2\n"
    assert files.read("/gone") is None
    assert files.vanished == 1
    files.close()
    files.close()


def test_flat_keyed() -> None:
    assert flat_keyed(b"a 1\nb 22\n") == {b"a": 1, b"b": 22}
    with pytest.raises(ValueError, match="3 words"):
        flat_keyed(b"a 1\nb")
    with pytest.raises(ValueError, match="invalid literal"):
        flat_keyed(b"a one\n")


def test_the_walk_tells_what_came_and_went(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a": {"b": {}}, "c": {}})
    walk = CgroupWalk(tmp_path, relist_every=1)
    assert set(walk.scan().added.values()) == {"/", "/a", "/a/b", "/c"}
    assert walk.scan() == type(walk.scan())({}, {})
    (tmp_path / "a/b").rmdir()
    make_tree(tmp_path, {"c": {"d": {}}})
    change = walk.scan()
    assert (set(change.added.values()), set(change.removed.values())) == ({"/c/d"}, {"/a/b"})
    (tmp_path / "c/d").rmdir()
    (tmp_path / "c").rmdir()
    assert set(walk.scan().removed.values()) == {"/c", "/c/d"}
    assert set(walk.paths.values()) == {"/", "/a"}
    walk.close()


@pytest.mark.parametrize("name", ["other", "job"])
def test_what_came_in_the_place_of_another_is_found_by_listing_again(tmp_path: Path, name: str) -> None:
    make_tree(tmp_path, {"a": {"job": {"inner": {}}}, "leaf": {}})
    walk = CgroupWalk(tmp_path, relist_every=1000)
    walk.scan()
    (tmp_path / "a/job").rename(tmp_path.parent / f"{tmp_path.name}-gone")  # so that its inode is not used again
    make_tree(tmp_path, {f"a/{name}": {}})
    unseen = walk.scan()
    assert (unseen.added, unseen.removed) == ({}, {}), "as many links as before"
    change = walk.relist()
    assert (set(change.added.values()), set(change.removed.values())) == ({f"/a/{name}"}, {"/a/job", "/a/job/inner"})
    assert walk.paths[os.stat(tmp_path / f"a/{name}").st_ino] == f"/a/{name}"
    again = walk.relist()
    assert (again.added, again.removed) == ({}, {})
    walk.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory away")
def test_the_walk_reports_owners_of_new_directories_and_of_those_that_were_given_away(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a": {}, "b": {}})
    os.chown(tmp_path / "b", 1000, 1000)
    walk = CgroupWalk(tmp_path)
    ids = {path: identity for identity, path in walk.paths.items()} if walk.scan().added else {}
    os.chown(tmp_path / "a", 1001, 1001)  # as systemd does after mkdir, with Delegate= and User=
    assert walk.scan().owners == {ids["/a"]: 1001}
    assert walk.scan().owners == {}
    (tmp_path / "a").rmdir()
    assert walk.scan().owners == {}
    walk.close()
    assert CgroupWalk(tmp_path).scan().owners == {ids["/"]: os.geteuid(), ids["/b"]: 1000}


HOSTILE = (b"bad\x80name", b"esc\x1b[2J", b"back\\slash", "right\u202eleft".encode(), b"tab\there")


def test_paths_of_hostile_names_are_text_that_opens_the_right_file(tmp_path: Path) -> None:
    for name in HOSTILE:
        directory = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
        make_tree(directory, {"cpu.stat": f"{name!r}\n"})
    found = CgroupWalk(tmp_path).scan().added.values()
    files = KeptFiles(tmp_path, "cpu.stat")
    assert sorted(files.read(path) or b"" for path in found if path != "/") == sorted(
        f"{name!r}\n".encode() for name in HOSTILE
    )
    assert all(path.isprintable() for path in found)
    files.close()


def test_cgroups_however_deep_are_walked(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    for _ in range(600):
        os.mkdir("d" * 20, dir_fd=descriptor)
        below = os.open("d" * 20, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    walk = CgroupWalk(tmp_path)
    deepest = max(walk.scan().added.values(), key=len)
    assert deepest == f"/{'d' * 20}" * 600
    assert KeptFiles(tmp_path, "cpu.stat").read(deepest) is None
    (tmp_path / ("d" * 20)).rename(tmp_path / "renamed")
    change = walk.scan(everything=True)
    assert (len(change.added), len(change.removed)) == (600, 600)
    walk.close()


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Let this process open so many files more, and no other."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(map(int, os.listdir("/proc/self/fd"))) + 1
    filling = [os.open("/dev/null", os.O_RDONLY) for _ in range(most)]  # fill the gaps below the limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(filling) + 1 + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in filling:
            os.close(fd)


def test_without_a_free_descriptor_what_is_known_stays_and_the_rest_comes_later(tmp_path: Path) -> None:
    make_tree(tmp_path, {f"pod-{number}": {} for number in range(20)})
    walk = CgroupWalk(tmp_path, relist_every=1)
    with descriptors_left(8):
        known = set(walk.scan().added.values())
        assert "/" in known
        assert 1 < len(known) <= 8
        assert walk.unopened > 0
        assert not walk.scan().removed, "no descriptor is no sign that a cgroup is gone"
    assert known | set(walk.scan().added.values()) == {"/", *(f"/pod-{number}" for number in range(20))}
    walk.close()


def test_what_is_below_a_directory_that_could_not_be_listed_comes_later(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a": {"b": {"c": {}}}})
    walk = CgroupWalk(tmp_path, relist_every=1)
    walk.scan()
    make_tree(tmp_path, {"a/d/e": {}})
    with descriptors_left(1):
        walk.scan()
    assert "/a/d/e" not in walk.paths.values()
    walk.scan()
    walk.scan()
    assert set(walk.paths.values()) == {"/", "/a", "/a/b", "/a/b/c", "/a/d", "/a/d/e"}
    walk.close()


def test_kept_files_give_their_descriptors_back_rather_than_fail(tmp_path: Path) -> None:
    make_tree(tmp_path, {f"pod-{number}": {"cpu.stat": f"x {number}\n"} for number in range(20)})
    files = KeptFiles(tmp_path, "cpu.stat")
    with descriptors_left(8):
        found = [files.read(f"/pod-{number}") for number in range(20)]
    assert found == [f"x {number}\n".encode() for number in range(20)]
    with descriptors_left(0), pytest.raises(HostError, match="Too many open files"):
        KeptFiles(tmp_path, "cpu.stat").read("/pod-1")
    files.close()


def test_what_a_user_owns_is_delegated_and_all_below_it(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("chown needs root")
    make_tree(tmp_path, {"user/sub/cpu.stat": "", "kubepods/cpu.stat": ""})
    os.chown(tmp_path / "user", 1000, -1)
    walk = CgroupWalk(tmp_path)
    walk.scan()
    assert [walk.is_delegated(path) for path in ("/", "/kubepods", "/user", "/user/sub", "/gone")] == [
        False,
        False,
        True,
        True,
        True,
    ]
    walk.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory away")
def test_of_a_users_directories_as_many_as_his_share_are_known(tmp_path: Path) -> None:
    make_tree(tmp_path, {"user": {f"unit-{number}": {"inner": {}} for number in range(10)}, "service": {"part": {}}})
    os.chown(tmp_path / "user", 1000, -1)
    walk = CgroupWalk(tmp_path, relist_every=1, share_of_owner=4)
    known = set(walk.scan().added.values())
    assert {"/", "/service", "/service/part", "/user"} < known
    assert len([path for path in known if path.startswith("/user/")]) == 4
    assert walk.passed_over >= 6
    make_tree(tmp_path, {f"service/late-{number}": {} for number in range(10)})
    assert len(walk.scan().added) == 10, "one owner's share is not another's"
    shutil.rmtree(tmp_path / "user")
    (tmp_path / "user").mkdir()
    walk.scan()
    assert not [path for path in walk.paths.values() if path.startswith("/user/")]
    assert walk.passed_over == 0
    walk.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory away")
def test_others_take_the_place_of_a_users_directories_that_are_gone(tmp_path: Path) -> None:
    make_tree(tmp_path, {"user": {f"unit-{number}": {} for number in range(6)}})
    os.chown(tmp_path / "user", 1000, -1)
    walk = CgroupWalk(tmp_path, share_of_owner=4)
    first = {path for path in walk.scan().added.values() if path.startswith("/user/")}
    for path in first:
        (tmp_path / path.strip("/")).rmdir()
    change = walk.scan()
    assert set(change.removed.values()) == first
    assert len(change.added) == 2
    walk.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory away")
def test_a_directory_given_away_later_is_brought_within_the_share_and_back(tmp_path: Path) -> None:
    make_tree(tmp_path, {"user": {"a": {f"unit-{number}": {} for number in range(10)}}})
    walk = CgroupWalk(tmp_path, relist_every=1, share_of_owner=4)
    assert len(walk.scan().added) == 13
    os.chown(tmp_path / "user", 1000, -1)
    assert len(walk.scan().removed) == 7
    assert [walk.boundary_of(path) for path in ("/user/a", "/user", "/", "/gone")] == ["/user", "/user", "/", "/gone"]
    os.chown(tmp_path / "user", os.geteuid(), -1)
    walk.scan()
    assert len(walk.paths) == 13
    walk.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory away")
def test_a_long_list_of_a_users_is_not_read_to_its_end_and_what_is_known_stays(tmp_path: Path) -> None:
    make_tree(tmp_path, {"user": {f"unit-{number}": {} for number in range(4)}})
    os.chown(tmp_path / "user", 1000, -1)
    walk = CgroupWalk(tmp_path, relist_every=1, share_of_owner=4)
    walk.scan()
    for number in range(500):
        (tmp_path / f"user/new-{number}").mkdir()
    assert not walk.scan().removed
    assert walk.passed_over <= 8 * 4 + 4
    assert {f"/user/unit-{number}" for number in range(4)} < set(walk.paths.values())
    walk.close()
