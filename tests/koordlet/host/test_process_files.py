"""Files as a process sees them: mappings, and paths below its root that must not lead out of it."""

import os
from pathlib import Path

import pytest

from koordlet.host.files import HostTree
from koordlet.host.process_files import executable_mappings, open_below_root, parse_maps, pid_inside, process_name

MAPS = b"""\
55d0c0000000-55d0c0001000 r--p 00000000 fe:01 12 /usr/bin/web
55d0c0001000-55d0c0003000 r-xp 00001000 fe:01 12 /usr/bin/web with blanks (deleted)
7f0000000000-7f0000001000 rwxp 00000000 00:00 0
7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0 [vdso]
zz-yy r-xp 0 fe:01 12 /torn
torn
"""


def test_only_executable_mappings_count() -> None:
    web, compiled, vdso = parse_maps(MAPS)
    assert (web.start, web.offset, web.path) == (0x55D0C0001000, 0x1000, "/usr/bin/web with blanks (deleted)")
    assert web.is_file
    assert not compiled.is_file
    assert vdso.path == "[vdso]"


def test_a_process_that_is_gone_has_nothing(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    assert (executable_mappings(tree, 7), process_name(tree, 7), pid_inside(tree, 7)) == ((), "", 7)
    assert open_below_root(tree, 7, "/etc/hostname") is None


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    """A process 7 whose root is a directory, beside a secret outside of it."""
    root = tmp_path / "container"
    (root / "tmp").mkdir(parents=True)
    (tmp_path / "secret").write_text("host")
    (root / "secret").write_text("container")
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/root").symlink_to(root)
    return HostTree(tmp_path)


def content(tree: HostTree, path: str) -> str | None:
    descriptor = open_below_root(tree, 7, path)
    if descriptor is None:
        return None
    with os.fdopen(descriptor) as stream:
        return stream.read()


@pytest.mark.parametrize(
    "target", ["/secret", "../secret", "../../../../secret", "/tmp/../../secret", "/loop/../secret"]
)
def test_links_stay_below_the_root(tree: HostTree, target: str) -> None:
    root = tree.path("container")
    (root / "loop").symlink_to("tmp")
    (root / "tmp/perf-1.map").symlink_to(target)
    assert content(tree, "/tmp/perf-1.map") == "container"


def test_what_is_no_file_is_not_opened(tree: HostTree) -> None:
    root = tree.path("container")
    os.mkfifo(root / "tmp/perf-1.map")
    (root / "circle").symlink_to("circle")
    for path in ("/tmp/perf-1.map", "/tmp", "/circle", "/absent/file", "/secret/below", "/"):
        assert content(tree, path) is None
    before = len(os.listdir("/proc/self/fd"))
    content(tree, "/secret")
    assert len(os.listdir("/proc/self/fd")) == before
