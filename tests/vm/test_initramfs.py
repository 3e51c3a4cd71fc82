"""Modules are loaded after what they need."""

import lzma
from pathlib import Path

from tests.vm.initramfs import load_order, read_module

MODULES_DEP = """\
kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz
kernel/net/9p/9pnet.ko.xz:
kernel/fs/netfs/netfs.ko.xz:
kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/drivers/virtio/virtio.ko.xz
kernel/drivers/virtio/virtio.ko.xz:
"""


def test_each_module_comes_after_its_needs_and_once() -> None:
    order = load_order(MODULES_DEP, ("9pnet_virtio", "9p", "built-in-one"))
    assert [Path(path).name for path in order] == [
        "virtio.ko.xz",
        "9pnet.ko.xz",
        "9pnet_virtio.ko.xz",
        "netfs.ko.xz",
        "9p.ko.xz",
    ]


def test_dash_and_underscore_name_the_same_module() -> None:
    assert load_order("kernel/a_b.ko:\n", ("a-b",)) == ["kernel/a_b.ko"]


def test_compressed_module_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "m.ko.xz").write_bytes(lzma.compress(b"ELF"))
    (tmp_path / "m.ko").write_bytes(b"ELF")
    assert read_module(tmp_path / "m.ko.xz") == read_module(tmp_path / "m.ko") == b"ELF"
