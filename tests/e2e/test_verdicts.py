"""Verdict lines of the running agent, and baselines kept over a restart of agent and workload."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from api.verdicts import Verdict, VerdictState, from_json
from detector.baselines.values import BaselinePolicy
from koordlet.agent.baseline_store import read_baselines, refused_files
from probes.probe import Kernel
from tests.cgroups import CgroupTree, TestCgroup
from tests.waiting import alive, wait_for

KOORDLET = [sys.executable, "-m", "koordlet"]
BUSY = ["sh", "-c", "while :; do :; done"]
INTERVAL_SECONDS = 0.2
SETTINGS = f"""
interval_seconds = {INTERVAL_SECONDS}
[metrics]
enabled = false
[enforcer]
state_dir = "{{directory}}/state"
audit_file = ""
[detection]
baselines_file = "{{directory}}/baselines.json"
"""


class Told:
    """Verdicts on the agent's standard output."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log
        self.verdicts: list[Verdict] = []
        self._rest = b""

    def until(self, wanted: Callable[[Verdict], bool], seconds: float = 60.0) -> Verdict | None:
        """Return the next verdict that matches, or None if none comes in time."""
        assert self.process.stdout
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self.process.stdout], [], [], left)[0]:
                break
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, self.log.read_text()
            *lines, self._rest = (self._rest + data).split(b"\n")
            fresh = [from_json(line) for line in lines]
            self.verdicts += fresh
            found = next(filter(wanted, fresh), None)
            if found is not None:
                return found
        return None


@contextmanager
def running(directory: Path, settings: str = "") -> Iterator[Told]:
    """Run the agent with verdicts as JSON lines; it is asked to stop, and stops."""
    config, log = directory / "koordlet.toml", directory / "log"
    config.write_text(SETTINGS.format(directory=directory) + settings)
    with log.open("w") as stream:
        command = [*KOORDLET, "run", "--standalone", "--json", "--config", str(config)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream)
    try:
        wait_for(lambda: "measuring with" in log.read_text(), check=alive(process, log))
        yield Told(process, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


@pytest.mark.kernel
@pytest.mark.beside
def test_a_verdict_opens_with_its_culprit_and_closes_when_the_culprit_goes(
    kernel: Kernel, tree: CgroupTree, tmp_path: Path
) -> None:
    with tree.make_cgroup("told") as victim, running(tmp_path) as told:
        victim.spawn(BUSY, cpus="0")
        with tree.make_cgroup("told-hog") as hog:
            hog.spawn(BUSY, cpus="0")

            def blames_the_hog(verdict: Verdict) -> bool:
                paths = [culprit.path for culprit in verdict.culprits]
                return (verdict.victim, verdict.cause) == (victim.path, "contention") and hog.path in paths[:2]

            opened = told.until(blames_the_hog)
        assert opened is not None
        assert opened.state in (VerdictState.OPEN, VerdictState.UPDATE)
        victim.remove()
        assert told.until(lambda each: (each.victim, each.state) == (victim.path, VerdictState.CLOSE)) is not None
        assert "lost" not in told.log.read_text()


@pytest.mark.kernel
@pytest.mark.beside(together=True)
def test_a_closed_pipe_ends_the_agent_cleanly(kernel: Kernel, tmp_path: Path) -> None:
    with running(tmp_path) as told:
        assert told.process.stdout
        told.process.stdout.close()
        assert told.process.wait(60) == 0
        assert "reader of standard output is gone" in told.log.read_text()
        assert "every probe is detached" in told.log.read_text()
        assert "Traceback" not in told.log.read_text()
        assert (tmp_path / "baselines.json").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param(
            "[detection.rules.mine]\nany_of = ['cpu_contetnion']\n",
            ["rule mine", "any_of", "cpu_contetnion"],
            id="unknown-symptom",
        ),
        pytest.param("[detection.rules.smt]\nthreshold = -1.0\n", ["rule smt", "threshold"], id="negative-threshold"),
        pytest.param(
            "[detection]\ndisabled_rules = ['nosuch']\n", ["disabled_rules", "nosuch"], id="unknown-rule-disabled"
        ),
        pytest.param(
            "[detection]\nrules_file = '/nowhere.toml'\n", ["/nowhere.toml", "cannot be read"], id="rules-file-absent"
        ),
        pytest.param(
            "[detection]\nmodels_file = '/nowhere.json'\n", ["/nowhere.json", "cannot be read"], id="models-file-absent"
        ),
    ],
)
def test_check_config_checks_rules_too(tmp_path: Path, settings: str, words: list[str]) -> None:
    config = tmp_path / "koordlet.toml"
    config.write_text(settings)
    command = [*KOORDLET, "run", "--check-config", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.kernel
@pytest.mark.beside(together=True)
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b'{"schema":"koord.baselines/v0","sha256":"","body":{}}', "this version reads", id="older"),
        pytest.param(b'{"schema":"koord.baselines/v1","sha256":"00","body":{}}', "damaged", id="corrupt"),
        pytest.param(b'{"schema":"koord.base', "not a baseline file", id="truncated"),
    ],
)
def test_a_file_that_is_refused_is_kept_aside_and_said(
    kernel: Kernel, tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "baselines.json"
    path.write_bytes(content)
    config = tmp_path / "doctor.toml"
    config.write_text(f'[detection]\nbaselines_file = "{path}"\n')
    asked = [*KOORDLET, "doctor", "--config", str(config)]
    assert reason in subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    assert path.read_bytes() == content
    with running(tmp_path) as told:
        assert reason in told.log.read_text()
    (aside,) = refused_files(path)
    assert aside.read_bytes() == content
    assert read_baselines(path, time.time(), BaselinePolicy()).baselines is not None
    assert aside.name in subprocess.run(asked, capture_output=True, text=True, check=False).stdout


# Answers each line after `delay` seconds; prints its port.
SERVICE = """
import socket, sys, threading, time
delay = float(sys.argv[1])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
def serve(connection):
    for _ in connection.makefile("rb"):
        time.sleep(delay)
        connection.sendall(b"answer\\n")
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
# Keeps asking on eight connections, each some 5.6 times a second: together in the middle of an octave of load.
CLIENT = """
import socket, sys, threading, time
def ask(number):
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    answers = connection.makefile("rb")
    due = time.monotonic() + number * 0.0222
    while True:
        time.sleep(max(due - time.monotonic(), 0))
        due = max(due + 0.1776, time.monotonic())
        connection.sendall(b"question\\n")
        answers.readline()
threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
"""
USUAL_SECONDS, SLOW_SECONDS = 0.002, 0.1
NEVER = "[detection.rules.turnaround]\nthreshold = 1000.0\n"
"""Nothing is learned of what is harmed, and on a busy host everything is."""


@contextmanager
def serving(tree: CgroupTree, delay_seconds: float) -> Iterator[TestCgroup]:
    """A new pod of the same workload: the same path, another cgroup; with clients."""
    with tree.make_cgroup("service") as pod, tree.make_cgroup("clients") as clients:
        server = pod.spawn([sys.executable, "-c", SERVICE, str(delay_seconds)], stdout=subprocess.PIPE)
        assert server.stdout
        port = server.stdout.readline().decode().strip()
        clients.spawn([sys.executable, "-c", CLIENT, port])
        yield pod


def is_late(pod: TestCgroup) -> Callable[[Verdict], bool]:
    return lambda verdict: (verdict.victim, verdict.rule, verdict.state) == (pod.path, "turnaround", VerdictState.OPEN)


def ready_cells(directory: Path) -> int:
    found = read_baselines(directory / "baselines.json", time.time(), BaselinePolicy()).baselines
    cards = found.records(time.time()) if found else ()
    return sum(card.signal == "turnaround" and card.weight >= BaselinePolicy().warm_samples for card in cards)


@pytest.mark.kernel
@pytest.mark.slow
def test_what_was_learned_judges_a_restarted_pod_from_the_first_window(
    kernel: Kernel, tree: CgroupTree, tmp_path: Path
) -> None:
    if not kernel.btf.has_tracepoint("sk_data_ready"):
        pytest.skip("this kernel has no tracepoint sk_data_ready, so turnaround is not measured")
    rules = tmp_path / "rules.toml"
    rules.write_text('[rules.turnaround]\nany_of = ["turnaround"]\nthreshold = 0.1\n')
    judged = f'rules_file = "{rules}"\n'
    learned, fresh = tmp_path / "learned", tmp_path / "fresh"
    for directory in (learned, fresh):
        directory.mkdir()
    with serving(tree, USUAL_SECONDS) as pod:
        first = pod.cgroup_id
        with running(learned, f"{judged}save_seconds = 1.0\n{NEVER}") as told:
            deadline = time.monotonic() + 120
            while not ready_cells(learned):
                assert time.monotonic() < deadline
                told.until(lambda _verdict: False, seconds=1.0)
    with serving(tree, SLOW_SECONDS) as pod:
        assert pod.cgroup_id != first
        with running(learned, judged) as told:
            started = time.time()
            late = told.until(is_late(pod))
        assert late is not None
        learning_anew_seconds = BaselinePolicy().warm_samples * INTERVAL_SECONDS
        assert late.time - started < learning_anew_seconds
        assert late.evidence["turnaround_seconds"] > 10 * late.evidence["usual_turnaround_seconds"]
        with running(fresh, judged) as told:
            assert told.until(is_late(pod), seconds=5) is None
