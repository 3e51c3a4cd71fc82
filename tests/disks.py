"""A disk that a test may overwrite: the guest's own in a virtual machine, a loop device elsewhere."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DISK_BYTES = 256 << 20
DISK_VARIABLE = "KOORD_TEST_DISK"


class NoDiskError(Exception):
    """No disk to overwrite on this host; the text has the reason."""


@contextmanager
def scratch_disk(directory: Path) -> Iterator[Path]:
    """Yield a block device of at least DISK_BYTES, empty or with leftovers of other tests.

    It is the one that the environment variable KOORD_TEST_DISK names, or a loop device on a file in `directory`.
    Raises NoDiskError.
    """
    named = os.environ.get(DISK_VARIABLE)
    if named:
        yield Path(named)
        return
    backing = directory / "disk.img"
    with backing.open("wb") as stream:
        stream.truncate(DISK_BYTES)
    attach = ["losetup", "--find", "--show", "--direct-io=on", str(backing)]
    attached = subprocess.run(attach, capture_output=True, text=True, check=False)
    if attached.returncode != 0:
        raise NoDiskError(f"no loop device: {attached.stderr.strip()}")
    device = attached.stdout.strip()
    try:
        yield Path(device)
    finally:
        subprocess.run(["losetup", "--detach", device], check=False)
