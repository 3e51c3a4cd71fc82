"""What the guardian loads, and where it goes: only what it needs, and out of the agent's cgroups."""

import os
import subprocess
import sys
from pathlib import Path

from koordlet.enforcer.guardian import apart
from tests.trees import make_tree

ROOT = Path(__file__).parents[3]
LARGE = ("numpy", "pyroute2", "prometheus_client", "click", "koordlet.config", "probes.libbpf", "email", "subprocess")


def test_all_that_it_needs_to_restore_is_loaded_and_nothing_large() -> None:
    script = (
        "import sys; import koordlet.enforcer.guardian.process as p; before = set(sys.modules); "
        "p._attempt({'left': {'state_dir': sys.argv[1]}, 'root': '/'}, beside=False); "
        "p._attempt({'left': {'state_dir': sys.argv[1]}, 'root': '/'}, beside=True); "
        "late = {name for name in set(sys.modules) - before if not name.startswith('encodings')}; "
        "print(*sorted(late), *(name for name in sys.argv[2:] if name in sys.modules))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, "/nonexistent", *LARGE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd="/")
    assert done.stdout.split() == []


def mounts(*lines: str) -> dict[str, str]:
    return {"proc/self/mountinfo": "".join(f"{line}\n" for line in lines)}


def test_on_v2_it_gets_a_cgroup_and_takes_it_away(tmp_path: Path) -> None:
    make_tree(tmp_path, mounts("30 25 0:26 / /cg rw - cgroup2 cgroup2 rw,nsdelegate") | {"cg/cgroup.procs": ""})
    assert apart.leave_cgroups(str(tmp_path)) == ""
    assert (tmp_path / "cg/koord-guardian/cgroup.procs").read_text() == str(os.getpid())
    (tmp_path / "cg/koord-guardian/cgroup.procs").unlink()  # a real one goes with its directory
    apart.leave_nothing(str(tmp_path))
    assert not (tmp_path / "cg/koord-guardian").exists()
    assert (tmp_path / "cg/cgroup.procs").read_text() == str(os.getpid())


def test_on_v1_it_leaves_every_hierarchy(tmp_path: Path) -> None:
    lines = [
        "31 25 0:21 / /cg/memory rw - cgroup cgroup rw,memory",
        "32 25 0:22 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct",
        "33 25 0:23 / /cg/systemd rw - cgroup cgroup rw,xattr,name=systemd",
        "34 25 0:24 / /tmp rw - tmpfs tmpfs rw",
        "torn",
    ]
    files = {f"cg/{name}/cgroup.procs": "" for name in ("memory", "cpu", "systemd")}
    make_tree(tmp_path, mounts(*lines) | files)
    assert apart.leave_cgroups(str(tmp_path)) == ""
    assert (tmp_path / "cg/memory/koord-guardian/cgroup.procs").read_text() == str(os.getpid())
    for name in ("cpu", "systemd"):
        assert (tmp_path / "cg" / name / "cgroup.procs").read_text() == str(os.getpid())


def test_what_keeps_it_is_said(tmp_path: Path) -> None:
    make_tree(tmp_path, mounts())
    assert "no cgroup hierarchy" in apart.leave_cgroups(str(tmp_path))
    make_tree(tmp_path, mounts("30 25 0:26 / /missing/cg rw - cgroup2 cgroup2 rw") | {"missing": "a file"})
    assert "Not a directory" in apart.leave_cgroups(str(tmp_path))
    apart.leave_nothing(str(tmp_path))
