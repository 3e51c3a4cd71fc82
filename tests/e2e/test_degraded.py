"""Hosts that lack something: a clear reason, and the rest goes on. What is missing is hidden in a mount namespace."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from probes.build import object_path
from probes.probe import Kernel

pytestmark = [pytest.mark.kernel, pytest.mark.beside(together=True)]

HIDE_BTF = "mount -t tmpfs none /sys/kernel/btf"


def libbpf_path() -> Path:
    return next(path.resolve() for path in Path("/usr/lib").glob("*-linux-gnu/libbpf.so.1"))


def koordlet(hide: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the agent where `hide` (shell commands) has been done to a private view of the file system."""
    script = f'{hide} && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", script, "sh", sys.executable, "-m", "koordlet", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def doctor(hide: str) -> tuple[int, dict[str, dict[str, str | bool | None]]]:
    done = koordlet(hide, "doctor", "--json")
    assert "Traceback" not in done.stderr, done.stderr
    found = json.loads(done.stdout)
    return done.returncode, {row["name"]: row for row in found["capabilities"]}


def test_without_libbpf_the_kernels_counters_remain(kernel: Kernel) -> None:
    hide = f"mount --bind /dev/null {libbpf_path()}"
    code, found = doctor(hide)
    assert code == 3
    assert found["libbpf"]["available"] is False
    assert "libbpf1" in str(found["libbpf"]["remedy"])
    assert found["cpu"]["available"] is False
    assert found["cpustat"]["available"] is True


def test_a_corrupt_object_is_named_and_the_other_probes_go_on(kernel: Kernel, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"\x7fELF" + b"\0" * 100)
    _, found = doctor(f"mount --bind {garbage} {object_path('irq')}")
    assert found["irq"]["available"] is False
    assert "irq.bpf.o" in str(found["irq"]["reason"])
    assert "probes.build" in str(found["irq"]["remedy"])
    assert found["cpu"]["available"] is True


def test_without_btf_a_snapshot_says_what_it_rests_on(kernel: Kernel) -> None:
    done = koordlet(HIDE_BTF, "snapshot", "--seconds", "1", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    root = next(row for row in found["cgroups"] if row["path"] == "/")
    if "cpu" in found["host"]["unsupported"]:
        assert root["cpu"]["wait_seconds"] is None
        assert "BTF" in found["host"]["unsupported"]["cpu"]
    assert root["cpu"]["oncpu_seconds"] is not None
    assert root["memory"]["usage_bytes"] is not None
