"""Disk images that stand in for directories of the host.

Python looks for each module in many places, and every look-up that finds nothing is a round trip over 9p: importing
pytest and numpy takes 15 s there and 5 s from an ext4 image, whose misses the guest's kernel remembers. And an image
of the repository does not change while the original is edited.
"""

import compileall
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.vm.debian import UnavailableError

_BLOCK_BYTES = 4096
_NOT_SOURCE = (".git", ".venv", "build", "dist", ".*_cache", ".hypothesis", "node_modules")


def python_directories() -> tuple[Path, ...]:
    """Return the virtual environment and the standard library of this interpreter."""
    return Path(sys.prefix), Path(sysconfig.get_path("stdlib")).resolve()


def snapshot(repository: Path, scratch: Path) -> Path:
    """Return an image of the repository's present sources, made in `scratch` unless it is there.

    All of them are compiled: an emulated CPU takes a quarter of a second for each module.
    """
    image = scratch / "repository.ext4"
    if image.exists():
        return image
    staged = scratch / "repository"
    shutil.copytree(repository, staged, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_SOURCE))
    environment = Path(sys.prefix)
    if environment.is_relative_to(repository):
        (staged / environment.relative_to(repository)).mkdir(parents=True)
    # What is compiled already came along. A file that cannot be compiled is for the guest's tests to tell.
    compileall.compile_dir(staged, quiet=2, stripdir=str(staged), prependdir=str(repository), workers=0)
    _, num_files, num_blocks = _survey(staged)
    _make(staged, image, num_files, num_blocks)
    return image


def empty(scratch: Path, num_bytes: int) -> Path:
    """Return an image of an empty file system, made in `scratch` unless it is there; its holes take no space."""
    image = scratch / "empty.ext4"
    if not image.exists():
        _mke2fs(image, ["-N", "65536"], num_bytes // _BLOCK_BYTES)
    return image


def image_of(directory: Path, cache: Path) -> Path:
    """Return a read-only ext4 image of `directory`, made unless the cache has one of just this content.

    Content is compared by names, sizes and modification times. Raises UnavailableError without mke2fs.
    """
    digest, num_files, num_blocks = _survey(directory)
    slot = cache / "images" / hashlib.sha256(bytes(directory)).hexdigest()[:16]
    image = slot / f"{digest}.ext4"
    if not image.exists():
        slot.mkdir(parents=True, exist_ok=True)
        for stale in slot.iterdir():
            stale.unlink()
        _make(directory, image, num_files, num_blocks)
    return image


def _survey(directory: Path) -> tuple[str, int, int]:
    """Return a digest, the number of files and the number of blocks they take."""
    digest = hashlib.sha256()
    num_files = num_blocks = 0
    for parent, _, names in sorted(os.walk(directory)):
        for name in (".", *sorted(names)):
            status = os.lstat(os.path.join(parent, name))
            digest.update(f"{parent}\0{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
            num_files += 1
            num_blocks += 1 + status.st_size // _BLOCK_BYTES
    return digest.hexdigest(), num_files, num_blocks


def _make(directory: Path, image: Path, num_files: int, num_blocks: int) -> None:
    # A tenth and 32 MiB on top of the data hold bitmaps, inode tables and extents.
    total_blocks = num_blocks * 11 // 10 + num_files // 8 + 8192
    unfinished = image.with_suffix(".partial")
    _mke2fs(unfinished, ["-N", str(num_files + 4096), "-d", str(directory)], total_blocks)
    unfinished.rename(image)


def _mke2fs(image: Path, options: list[str], total_blocks: int) -> None:
    command = ["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-b", str(_BLOCK_BYTES)]
    command += [*options, str(image), str(total_blocks)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise UnavailableError("mke2fs (e2fsprogs) is not installed") from error
    if done.returncode != 0:
        image.unlink(missing_ok=True)
        raise UnavailableError(f"mke2fs: {done.stderr.strip()}")
