"""The koordlet program as users run it, on the running kernel."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jsonschema
import pytest

from probes.probe import Kernel
from tests.cgroups import CgroupTree
from tests.waiting import alive, wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.beside]

KOORDLET = [sys.executable, "-m", "koordlet"]
SCHEMA = json.loads(Path("docs/snapshot.schema.json").read_text())
BUSY = ["sh", "-c", "while :; do :; done"]
SETTINGS = """
interval_seconds = 0.5
[metrics]
port = 0
[enforcer]
state_dir = "{directory}/state"
audit_file = ""
[detection]
baselines_file = "{directory}/baselines.json"
"""


def programs_of(pid: int) -> set[int]:
    """Ids of the BPF programs that a process holds."""
    found: set[int] = set()
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            found.update(int(number) for number in re.findall(r"^prog_id:\s+(\d+)$", entry.read_text(), re.MULTILINE))
    return found


def await_unloaded(programs: set[int]) -> None:
    """The kernel frees programs after a grace period; other agents may have theirs."""
    wait_for(lambda: not programs & loaded_ids(), interval_seconds=0.2)


def loaded_ids() -> set[int]:
    """Ids of every BPF program in the kernel."""
    listed = json.loads(subprocess.check_output(["bpftool", "prog", "show", "--json"]))
    return {program["id"] for program in listed}


@contextmanager
def running(tmp_path: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """The agent with metrics on a free port; yields process, port and log file."""
    config = tmp_path / "koordlet.toml"
    config.write_text(SETTINGS.format(directory=tmp_path))
    log = tmp_path / "log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [*KOORDLET, "run", "--standalone", "--config", str(config), *arguments], stderr=stream, text=True
        )
    try:
        served = wait_for(
            lambda: re.search(r"metrics on http://127\.0\.0\.1:(\d+)/", log.read_text()), check=alive(process, log)
        )
        yield process, int(served.group(1)), log
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
        text: str = response.read().decode()
    return text


def await_sample(port: int, series: str, at_least: float = 0.0) -> None:
    """Wait until a series that begins like this has a value above `at_least`."""
    wait_for(
        lambda: any(
            float(value) > at_least for value in re.findall(rf"^{series}.*\}} (\S+)$", scrape(port), re.MULTILINE)
        ),
        interval_seconds=0.2,
    )


def test_run_measures_serves_and_stops_cleanly(kernel: Kernel, tree: CgroupTree, tmp_path: Path) -> None:
    with tree.make_cgroup("victim") as victim, tree.make_cgroup("hog") as hog, running(tmp_path) as (agent, port, log):
        victim.spawn(BUSY, cpus="0")
        hog.spawn(BUSY, cpus="0")
        await_sample(port, rf'koord_cgroup_cpu_wait_seconds_total{{cause="neighbour",cgroup="{victim.path}".*')
        blamed = rf'koord_cgroup_cpu_blame_seconds_total{{culprit_cgroup="{hog.path}",victim_cgroup="{victim.path}"'
        await_sample(port, blamed, at_least=0.5)
        await_sample(port, 'koord_verdicts_total{cause="contention",resource="cpu".*')
        await_sample(
            port, rf'koord_verdict_lost_seconds_per_second{{cause="contention",.*victim_cgroup="{victim.path}"'
        )
        name = victim.path.removeprefix("/")
        assert re.search(rf"WARNING {name} lost \S+ s/s waiting for CPU: .*\d to ", log.read_text())
        text = scrape(port)
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
        maps = Path(f"/proc/{agent.pid}/maps").read_text()
        assert not re.search(r"/(sklearn|pyarrow|kubernetes|scipy)/", maps)
        programs = programs_of(agent.pid)
        assert programs
        agent.send_signal(signal.SIGINT)
        assert agent.wait(timeout=60) == 0
        assert "stopped" in log.read_text()
    await_unloaded(programs)


def test_nothing_is_left_of_a_killed_agent(kernel: Kernel, tmp_path: Path) -> None:
    pinned = sorted(Path("/sys/fs/bpf").rglob("*")) if Path("/sys/fs/bpf").exists() else []
    with running(tmp_path) as (agent, _port, _log):
        programs = programs_of(agent.pid)
        assert programs & loaded_ids()
        agent.kill()
        agent.wait()
        await_unloaded(programs)
    assert (sorted(Path("/sys/fs/bpf").rglob("*")) if Path("/sys/fs/bpf").exists() else []) == pinned


@pytest.mark.beside(together=True)
def test_a_hangup_reads_the_settings_again_and_names_what_needs_a_restart(kernel: Kernel, tmp_path: Path) -> None:
    with running(tmp_path) as (process, _, log):
        settings = tmp_path / "koordlet.toml"
        settings.write_text(settings.read_text() + "[response]\nlease_seconds = 9.0\n[prediction]\nenabled = false\n")
        process.send_signal(signal.SIGHUP)
        wait_for(lambda: "settings read again; 1 changed keys" in log.read_text(), check=alive(process, log))
        assert "a restart is needed for [prediction] enabled" in log.read_text()
        settings.write_text("[no such table]\n")
        process.send_signal(signal.SIGHUP)
        wait_for(lambda: "the settings stay as they were" in log.read_text(), check=alive(process, log))


@pytest.mark.beside(together=True)
def test_the_agent_never_writes_to_a_cgroup(kernel: Kernel, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    calls = "trace=openat,open,creat,mkdir,mkdirat,rmdir"
    strace = ["strace", "-f", "--seccomp-bpf", "-e", calls, "-o", str(trace)]
    command = [*strace, *KOORDLET, "snapshot", "--seconds", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    touched = [line for line in trace.read_text().splitlines() if "/sys/fs/cgroup" in line or "/sys/fs/resctrl" in line]
    assert touched
    assert not [line for line in touched if re.search(r"O_WRONLY|O_RDWR|O_CREAT|mkdir|rmdir|creat\(", line)]


def test_snapshot_is_valid_and_sums(kernel: Kernel, tree: CgroupTree) -> None:
    with tree.make_cgroup("victim") as victim, tree.make_cgroup("hog") as hog:
        victim.spawn(BUSY, cpus="0")
        hog.spawn(BUSY, cpus="0")
        done = subprocess.run(
            [*KOORDLET, "snapshot", "--seconds", "2", "--json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        jsonschema.validate(found, SCHEMA)
        row = next(row for row in found["cgroups"] if row["path"] == victim.path)
    cpu = row["cpu"]
    assert sum(cpu["wait_by_cause"].values()) == pytest.approx(cpu["wait_seconds"], rel=0.01)
    assert hog.path in [culprit["path"] for culprit in cpu["blame"]]
    nulls = [name for name, value in row.items() if value is None]
    assert set(nulls) <= set(found["host"]["unsupported"])


@pytest.mark.beside(together=True)
def test_snapshot_as_a_table(kernel: Kernel) -> None:
    done = subprocess.run([*KOORDLET, "snapshot", "--seconds", "0.5"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "worst culprit" in done.stdout


@pytest.mark.beside(together=True)
def test_doctor(kernel: Kernel) -> None:
    done = subprocess.run([*KOORDLET, "doctor", "--json"], capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert found["cpu_blame_available"] is True
    for capability in found["capabilities"]:
        assert capability["reason"]
    assert "yes" in subprocess.check_output([*KOORDLET, "doctor"], text=True)


@pytest.mark.beside(together=True)
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        pytest.param(["run"], 2, "--standalone", id="run-without-a-node"),
        pytest.param(
            ["run", "--standalone", "--config", "/nonexistent.toml"], 2, "/nonexistent.toml", id="config-absent"
        ),
        pytest.param(["snapshot", "--seconds", "0"], 2, "--seconds", id="zero-seconds"),
        pytest.param(["nonsense"], 2, "nonsense", id="unknown-command"),
    ],
)
def test_asked_wrongly(kernel: Kernel, arguments: list[str], code: int, told: str) -> None:
    done = subprocess.run([*KOORDLET, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_help_has_examples() -> None:
    for verb in ("run", "snapshot"):
        assert "Examples" in subprocess.check_output([*KOORDLET, verb, "--help"], text=True)
