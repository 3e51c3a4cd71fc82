"""OCI image archives without a registry: one layer with this machine's static busybox."""

import hashlib
import io
import shutil
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

PAUSE = "registry.k8s.io/pause:3.10"
BUSYBOX = "docker.io/library/busybox:latest"
_MEDIA = "application/vnd.oci.image"
_FOLDERS = ("bin", "etc", "proc", "sys", "dev", "root", "var", "tmp")
_USERS = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"


class NoBusyboxError(Exception):
    """The machine has no static busybox."""


def busybox() -> Path:
    """Return the path of the machine's busybox. Raises NoBusyboxError."""
    found = shutil.which("busybox")
    if found is None:
        raise NoBusyboxError("no busybox on this machine: install busybox-static")
    return Path(found)


def write_archive(path: Path, references: Iterable[str], command: Sequence[str], applets: Iterable[str]) -> Path:
    """Write an archive of an image that is known by `references` and runs `command`; applets are links to busybox."""
    layer = _layer(applets)
    configuration = msgspec.json.encode(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": command, "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = msgspec.json.encode(
        {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA}.manifest.v1+json",
            "config": _descriptor(f"{_MEDIA}.config.v1+json", configuration),
            "layers": [_descriptor(f"{_MEDIA}.layer.v1.tar", layer)],
        }
    )
    described = _descriptor(f"{_MEDIA}.manifest.v1+json", manifest)
    named = [described | {"annotations": {"io.containerd.image.name": name}} for name in references]
    with tarfile.open(path, "w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(archive, "index.json", msgspec.json.encode({"schemaVersion": 2, "manifests": named}))
        for blob in (configuration, manifest, layer):
            _add(archive, f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}", blob)
    return path


def _layer(applets: Iterable[str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for name in _FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            layer.addfile(folder)
        _add(layer, "bin/busybox", busybox().read_bytes(), mode=0o755)
        _add(layer, "etc/passwd", _USERS)
        for name in applets:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "/bin/busybox"
            layer.addfile(link)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _descriptor(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"
