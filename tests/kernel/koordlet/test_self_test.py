"""`koordlet doctor --self-test` on this kernel: every counter that there is says what its stressor did."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from koordlet.host.cgroups.hierarchies import find_mounts
from koordlet.host.files import HostTree
from tests.emulation import why_no_real_time

pytestmark = pytest.mark.kernel


def self_test(directory: Path, *more: str) -> dict[str, dict[str, str]]:
    argv = [sys.executable, "-m", "koordlet", "doctor", "--self-test", "--json", "--directory", str(directory), *more]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)["results"]}


def test_threads_that_are_declared_to_share_a_core_prove_it(tmp_path: Path) -> None:
    if why := why_no_real_time():
        pytest.skip(why)
    first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    if first == last:
        pytest.skip("one CPU: it has no sibling")
    settings = tmp_path / "koordlet.toml"
    settings.write_text(f'[probes.options.smt]\nsiblings = "{first}-{last}"\n')
    told = self_test(tmp_path, "--config", str(settings))["SMT siblings"]
    assert told["status"] == "right", told


def test_no_counter_is_wrong(tmp_path: Path) -> None:
    if why := why_no_real_time():
        pytest.skip(why)
    told = self_test(tmp_path)
    assert {"run queue", "run queue blame", "tripwire", "net", "irq"} <= {
        name for name, row in told.items() if row["status"] == "right"
    }
    assert all(row["reason"] for row in told.values() if row["status"] == "absent")
    v1, unified = find_mounts(HostTree(Path("/")))
    roots = [*v1.values(), *filter(None, [unified])]
    assert [left for root in roots for left in root.glob("koord-self-test-*")] == []
