"""The container image: Debian packages and locked wheels in an OCI archive, made without daemon, registry or root.

Two layers: the packages of section `image` of deploy/packages.txt with all that they depend on, and the programs. No
script of a package runs, so the image has neither shell nor package manager of its own beside what these bring; what
scanners read of the packages is in var/lib/dpkg/status.d. Every file has the commit's time and root as its owner, and
entries are sorted, so two builds from the same packages are the same.
"""

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from deploy.release import debian
from deploy.release.locked import ROOT
from deploy.release.wheel import ReleaseError

REPOSITORY = "koord/koord"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MEDIA = "application/vnd.oci.image"
_MERGED = ("bin", "lib", "lib64", "sbin")
"""Directories of Debian that are links into usr."""
_NEEDLESS = (
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/share/bash-completion",
    "usr/share/perl5",
    "usr/share/pixmaps",
    "usr/share/applications",
    "usr/lib/python3.*/ensurepip",
    "usr/lib/python3.*/idlelib",
    "usr/lib/python3.*/lib2to3",
    "usr/lib/python3.*/pydoc_data",
    "usr/lib/python3.*/test",
    "usr/lib/koord/lib/python3.*/site-packages/**/tests",
    "usr/lib/koord/lib/python3.*/site-packages/**/*.pyi",
    "usr/lib/koord/lib/python3.*/site-packages/numpy/**/*.a",
)
_USERS = "".join(
    f"{name}:x:{number}:{number}::{home}:/usr/sbin/nologin\n"
    for name, number, home in (
        ("root", 0, "/root"),
        ("nobody", 65534, "/nonexistent"),
        ("koord", 65532, "/nonexistent"),
    )
)
_GROUPS = "root:x:0:\nnogroup:x:65534:\nkoord:x:65532:\n"


def packages(sections: Sequence[str]) -> list[str]:
    """Return the packages of sections of deploy/packages.txt."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in (ROOT / "deploy" / "packages.txt").read_text().splitlines():
        if line.startswith("["):
            name = line.strip("[]")
        elif line.strip() and not line.startswith("#"):
            found.setdefault(name, []).append(line.strip())
    missing = [section for section in sections if section not in found]
    if missing:
        raise ReleaseError(f"deploy/packages.txt has no section [{missing[0]}]")
    return [package for section in sections for package in found[section]]


def download(names: Iterable[str], folder: Path) -> list[Path]:
    """Fetch packages with all that they depend on, as apt's sources and keys have them. Raises ReleaseError.

    The folder is emptied first: what an earlier run fetched may be of another version, or no longer needed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "partial").mkdir(parents=True, exist_ok=True)
    status = folder / "status"
    status.touch()
    options = [f"Dir::State::status={status}", f"Dir::Cache::archives={folder}", "Debug::NoLocking=1"]
    options += ["APT::Sandbox::User=root", "APT::Install-Recommends=0"]
    command = ["apt-get", "install", "--download-only", "--yes", "--quiet"]
    done = subprocess.run(
        [*command, *(word for each in options for word in ("-o", each)), *names],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
    )
    if done.returncode:
        raise ReleaseError(f"apt-get: {done.stderr.strip()[-2000:]}; run: apt-get update")
    return sorted(folder.glob("*.deb"))


def unpack(archives: Iterable[Path], root: Path) -> None:
    """Put the files of packages below a directory, and what describes each into var/lib/dpkg/status.d."""
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    described = root / "var" / "lib" / "dpkg" / "status.d"
    described.mkdir(parents=True)
    for archive in archives:
        files = subprocess.run(["dpkg-deb", "--fsys-tarfile", archive], capture_output=True, check=True).stdout
        tar = ["tar", "--extract", "--no-same-owner", "--keep-directory-symlink", "--directory", root]
        subprocess.run(tar, input=files, check=True)
        control = subprocess.run(["dpkg-deb", "--field", archive], capture_output=True, text=True, check=True).stdout
        (described / archive.name.partition("_")[0]).write_text(control)


def finish(root: Path) -> None:
    """Add what maintainer scripts would have made, and remove what no program here reads."""
    _reduce(root)
    for path in sorted((root / "usr" / "share" / "doc").glob("*/*")):
        if path.name != "copyright" and (path.is_file() or path.is_symlink()):
            path.unlink()
    (root / "etc").mkdir(exist_ok=True)
    for name, text in (("passwd", _USERS), ("group", _GROUPS), ("nsswitch.conf", "hosts: files dns\n")):
        (root / "etc" / name).write_text(text)
    certificates = sorted((root / "usr" / "share" / "ca-certificates").rglob("*.crt"))
    if certificates:
        bundle = root / "etc" / "ssl" / "certs" / "ca-certificates.crt"
        bundle.parent.mkdir(parents=True, exist_ok=True)
        bundle.write_text("".join(path.read_text() for path in certificates))
    for name in ("tmp", "run", "proc", "sys", "dev", "root", "etc/koord", "var/lib/koord", "var/log/koord"):
        (root / name).mkdir(parents=True, exist_ok=True)


def add_programs(programs: Path, root: Path) -> None:
    """Put the virtual environment of the programs at its place, with links in usr/bin and compiled modules."""
    home = root / debian.HOME.lstrip("/")
    home.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(programs, home, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "usr" / "bin").mkdir(parents=True, exist_ok=True)
    for name in debian.PROGRAMS:
        (root / "usr" / "bin" / name).symlink_to(f"../lib/koord/bin/{name}")


def compile_modules(root: Path, folder: str) -> None:
    """Compile modules below a directory of the image; the result depends on their text alone. Raises ReleaseError."""
    compiling = "import compileall, py_compile, sys; sys.exit(not compileall.compile_dir(sys.argv[1], quiet=2, "
    compiling += "stripdir=sys.argv[2], prependdir='/', workers=1, force=True, "
    compiling += "invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH))"
    command = ["/usr/bin/python3", "-S", "-B", "-c", compiling, str(root / folder), str(root)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONHASHSEED": "0"}
    )
    if done.returncode and "Error" in done.stderr:
        raise ReleaseError(f"compileall: {done.stderr.strip()[-2000:]}")


def layer(root: Path, seconds: int) -> bytes:
    """Return the files below a directory as an uncompressed tar, sorted, of root and of one time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as made:
        for path in sorted(root.rglob("*"), key=lambda each: each.relative_to(root).parts):
            entry = made.gettarinfo(path, str(path.relative_to(root)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = seconds
            if entry.isdir():
                entry.mode = 0o1777 if entry.name in ("tmp", "var/tmp") else 0o755
            elif entry.isreg():
                entry.mode = 0o755 if entry.mode & 0o100 else 0o644  # no setuid, no write by others
            if entry.islnk():
                entry = _whole(entry, path)
            if entry.isreg():
                with path.open("rb") as file:
                    made.addfile(entry, file)
            else:
                made.addfile(entry)
    return buffer.getvalue()


def _whole(entry: tarfile.TarInfo, path: Path) -> tarfile.TarInfo:
    """Return the entry of a file that is linked to another name as one of its own."""
    entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
    entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
    return entry


def write_archive(path: Path, layers: Sequence[bytes], version: str, seconds: int, labels: Mapping[str, str]) -> str:
    """Write the OCI archive and return the digest of its manifest."""
    created = _rfc3339(seconds)
    packed = [gzip.compress(each, 6, mtime=0) for each in layers]
    configuration = msgspec.json.encode(
        {
            "created": created,
            "architecture": debian.architecture(),
            "os": "linux",
            "config": {
                "Env": [f"PATH={PATH}", "PYTHONDONTWRITEBYTECODE=1", "LANG=C.UTF-8"],
                "Cmd": ["koordlet", "run"],
                "Labels": dict(sorted(labels.items())),
            },
            "rootfs": {"type": "layers", "diff_ids": [_digest(each) for each in layers]},
            "history": [{"created": created, "created_by": name} for name in ("Debian packages", "programs")],
        }
    )
    manifest = msgspec.json.encode(
        {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA}.manifest.v1+json",
            "config": _descriptor("config.v1+json", configuration),
            "layers": [_descriptor("layer.v1.tar+gzip", each) for each in packed],
        }
    )
    named = _descriptor("manifest.v1+json", manifest) | {
        "annotations": {
            "io.containerd.image.name": f"docker.io/{REPOSITORY}:{version}",
            "org.opencontainers.image.ref.name": version,
        }
    }
    index = {"schemaVersion": 2, "mediaType": f"{_MEDIA}.index.v1+json", "manifests": [named]}
    with tarfile.open(path, "w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}', seconds)
        _add(archive, "index.json", msgspec.json.encode(index), seconds)
        for blob in (configuration, manifest, *packed):
            _add(archive, f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}", blob, seconds)
    return _digest(manifest)


def build(
    output: Path, programs: Path, archives: Sequence[Path], folder: Path, version: str, seconds: int, variant: str = ""
) -> Path:
    """Build the image from packages and a virtual environment of the programs. Raises ReleaseError."""
    base, own = folder / "base", folder / "own"
    base.mkdir(parents=True)
    own.mkdir()
    unpack(archives, base)
    finish(base)
    add_programs(programs, own)
    _reduce(own)
    (python,) = base.glob("usr/lib/python3.*")
    compile_modules(base, str(python.relative_to(base)))
    compile_modules(own, debian.HOME.lstrip("/"))
    tag = f"{version}-{variant}" if variant else version
    labels = {
        "org.opencontainers.image.title": "koord",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    path = output / f"koord-{tag}.oci.tar"
    write_archive(path, [layer(base, seconds), layer(own, seconds)], tag, seconds, labels)
    return path


def _reduce(root: Path) -> None:
    for pattern in _NEEDLESS:
        for path in sorted(root.glob(pattern), reverse=True):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _add(archive: tarfile.TarFile, name: str, content: bytes, seconds: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), 0o644, seconds
    archive.addfile(entry, io.BytesIO(content))


def _descriptor(kind: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": f"{_MEDIA}.{kind}", "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _rfc3339(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
