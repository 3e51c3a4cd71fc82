"""The image's layers and archive: the same from the same files, owned by root, and what a runtime expects."""

import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from deploy.release import image
from deploy.release.wheel import ReleaseError


def tree(root: Path, *, backwards: bool = False) -> Path:
    """Make files in one order or the other, with different times and rights."""
    names = ["b/one", "a.txt", "b/program", "c/empty/"]
    for number, name in enumerate(reversed(names) if backwards else names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir()
            continue
        path.write_text(name)
        path.chmod(0o4775 if name == "b/program" else 0o660 if backwards else 0o600)
        os.utime(path, (1000 + number, 2000 + number))
    (root / "link").symlink_to("b/one")
    os.link(root / "a.txt", root / "z-same")
    return root


def test_a_layer_depends_on_names_and_contents_alone(tmp_path: Path) -> None:
    first, second = (
        image.layer(tree(tmp_path / name, backwards=backwards), 1234) for name, backwards in (("x", False), ("y", True))
    )
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as read:
        entries = {entry.name: entry for entry in read.getmembers()}
        assert list(entries) == sorted(entries, key=lambda name: Path(name).parts)
        assert {(entry.uid, entry.gid, entry.uname, entry.mtime) for entry in entries.values()} == {(0, 0, "", 1234)}
        assert oct(entries["b/program"].mode) == "0o755", "no file takes the rights of its owner"
        assert oct(entries["a.txt"].mode) == "0o644"
        assert entries["link"].linkname == "b/one"
        same = read.extractfile("z-same")
        assert same is not None
        assert same.read() == b"a.txt", "a second name has the content of its own"


def test_the_archive_is_what_runtimes_import(tmp_path: Path) -> None:
    layers = [image.layer(tree(tmp_path / "x"), 1), image.layer(tree(tmp_path / "y"), 1)]
    digests = [image.write_archive(tmp_path / name, layers, "1.2.3", 1, {"b": "2", "a": "1"}) for name in ("1", "2")]
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    with tarfile.open(tmp_path / "1") as archive:
        read = {entry.name: archive.extractfile(entry).read() for entry in archive.getmembers()}  # type: ignore[union-attr]
    blobs = {name.rpartition("/")[2]: content for name, content in read.items() if name.startswith("blobs/")}
    assert all(hashlib.sha256(content).hexdigest() == name for name, content in blobs.items())
    (named,) = json.loads(read["index.json"])["manifests"]
    assert named["digest"] == digests[0] == digests[1]
    assert named["annotations"]["io.containerd.image.name"] == "docker.io/koord/koord:1.2.3"
    manifest = json.loads(blobs[named["digest"].removeprefix("sha256:")])
    configuration = json.loads(blobs[manifest["config"]["digest"].removeprefix("sha256:")])
    for described, unpacked, size in zip(
        manifest["layers"], configuration["rootfs"]["diff_ids"], map(len, layers), strict=True
    ):
        content = gzip.decompress(blobs[described["digest"].removeprefix("sha256:")])
        assert f"sha256:{hashlib.sha256(content).hexdigest()}" == unpacked
        assert len(content) == size
    assert configuration["config"]["Cmd"] == ["koordlet", "run"]


def test_packages_of_an_earlier_run_are_not_in_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt = tmp_path / "bin" / "apt-get"
    apt.parent.mkdir()
    apt.write_text(f"#!/bin/sh\ntouch {tmp_path}/fetched/libx_2_all.deb\n")
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(apt.parent), prepend=":")
    (tmp_path / "fetched").mkdir()
    (tmp_path / "fetched" / "libx_1_all.deb").touch()
    assert [path.name for path in image.download(["libx"], tmp_path / "fetched")] == ["libx_2_all.deb"]


def a_package(folder: Path, name: str, files: dict[str, str]) -> Path:
    """Make a package of one's own."""
    root = folder / name
    control = root / "DEBIAN"
    control.mkdir(parents=True)
    (control / "control").write_text(
        f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: x <x@localhost>\nDescription: x\n"
    )
    (control / "postinst").write_text("#!/bin/sh\nexit 1\n")
    (control / "postinst").chmod(0o755)
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    made = folder / f"{name}_1_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", root, made], check=True, capture_output=True)
    return made


def test_packages_share_their_directories_and_run_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    packages = [
        a_package(
            tmp_path, "one", {"lib/x/a.so": "a", "usr/share/man/man1/a.1": "m", "usr/share/doc/one/copyright": "c"}
        ),
        a_package(tmp_path, "two", {"usr/lib/x/b.so": "b", "usr/share/doc/two/changelog": "c"}),
    ]
    image.unpack(packages, root)
    image.finish(root)
    assert {path.name for path in (root / "usr/lib/x").iterdir()} == {"a.so", "b.so"}
    assert (root / "lib").is_symlink()
    assert not (root / "usr/share/man").exists()
    assert (root / "usr/share/doc/one/copyright").exists(), "licences stay"
    assert not (root / "usr/share/doc/two/changelog").exists()
    assert "Package: two" in (root / "var/lib/dpkg/status.d/two").read_text()
    assert "koord:x:65532:" in (root / "etc/passwd").read_text()
    assert (root / "tmp").is_dir()


def test_sections_name_packages() -> None:
    assert {"python3", "libbpf1"} <= set(image.packages(["image"]))
    with pytest.raises(ReleaseError, match="no section"):
        image.packages(["nothing"])


def test_modules_are_compiled_the_same_wherever_they_are(tmp_path: Path) -> None:
    texts = []
    for turn in range(2):
        folder = tmp_path / str(turn)
        (folder / "pkg").mkdir(parents=True)
        (folder / "pkg/module.py").write_text(
            "NAMES = frozenset({'a', 'b', 'c', 'd'})\n\ndef f(x={'k'}):\n    return x\n"
        )
        image.compile_modules(folder, "pkg")
        (found,) = (folder / "pkg/__pycache__").glob("*.pyc")
        texts.append(found.read_bytes())
        assert str(tmp_path).encode() not in texts[-1], "no path of the build"
    assert texts[0] == texts[1]
