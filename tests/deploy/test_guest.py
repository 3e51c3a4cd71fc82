"""A host without Kubernetes, with systemd as its first process: the Debian package, the unit, Vagrant's script.

Outside the usual runs: KOORD_DIST=dist, a folder that `python -m deploy.release wheelhouse deb` filled, asks for it;
emulated machines take twenty minutes. They have this machine's packages and no network, so none is installed.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.release.locked import LOCK, pins
from tests.deploy.charts import ROOT
from tests.vm import images
from tests.vm.debian import Suite, UnavailableError
from tests.vm.machine import REPOSITORY, Guest, run
from tests.vm.matrix import MATRIX
from tests.vm.run import TEMPORARY_BYTES, default_cache

TIMEOUT_SECONDS = 3600.0
SCRIPT = Path("tests/deploy/in_guest.sh")
RESULTS = Path("/run/koord-vm/results")
KERNEL = "6.12"
MEMORY_MIB = 3072
LAST = {"package": "purged", "vagrant": "uninstalled"}
"""What the script says last of each way."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT_SECONDS + 300)]


def test_the_script_is_bash() -> None:
    assert subprocess.run(["bash", "-n", ROOT / SCRIPT], check=False).returncode == 0


@pytest.mark.parametrize("way", LAST)
def test_the_unit_keeps_its_promises_however_it_was_installed(way: str, tmp_path: Path) -> None:
    made = os.environ.get("KOORD_DIST", "")
    if not made:
        pytest.skip("KOORD_DIST is not set: fill a folder by `python -m deploy.release wheelhouse deb`")
    results = tmp_path / "results"
    (results / "dist").mkdir(parents=True)
    if way == "package":
        shutil.copy2(*Path(made).glob("koord_*.deb"), results / "dist")
    else:
        shutil.copytree(Path(made) / "wheelhouse", results / "dist/wheelhouse")
        add_what_builds(results / "dist/wheelhouse", tmp_path)
    lines: list[str] = []
    began = time.monotonic()

    def heard(line: str) -> None:
        lines.append(line)
        print(f"{time.monotonic() - began:5.0f} s  {line}", flush=True)

    entry = next(each for each in MATRIX if each.name == KERNEL)
    cache = default_cache()
    try:
        kernel = Suite(entry.suite, cache).kernel()
        replaced = (
            (Path("/tmp"), images.empty(tmp_path, TEMPORARY_BYTES)),
            (Path("/opt"), images.empty(tmp_path, TEMPORARY_BYTES)),
            (REPOSITORY, images.snapshot(REPOSITORY, tmp_path)),
            *((path, images.image_of(path, cache)) for path in images.python_directories()),
        )
        guest = Guest(kernel, entry.cgroup, TIMEOUT_SECONDS, replaced, memory_mib=MEMORY_MIB, init="systemd")
        boot = run(guest, f"{SCRIPT} {way} {RESULTS}/dist", results, heard)
    except UnavailableError as error:
        pytest.skip(str(error))
    assert boot.status == 0, f"{boot.failure}\n" + "\n".join(lines[-40:])
    assert any(line.startswith(f"== {LAST[way]}") for line in lines)


def add_what_builds(wheelhouse: Path, scratch: Path) -> None:
    """Add what pip builds the project with."""
    wanted = scratch / "builds.txt"
    wanted.write_text(pins(LOCK.read_text())["setuptools"].line)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*pip, "--dest", wheelhouse, "-r", wanted], check=True)
