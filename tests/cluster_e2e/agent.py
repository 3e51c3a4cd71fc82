"""The agent in a cluster, enforcing, as a process of its own; what its journal says and what the files hold."""

import contextlib
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from koordlet.enforcer.journal_format import JournalEntry, Kind, decode
from tests.cluster_e2e.node import Node
from tests.waiting import PATIENCE, alive, wait_for

KOORDLET = [sys.executable, "-m", "koordlet"]
INTERVAL_SECONDS = min(PATIENCE, 3.0)
"""Between ticks; one each second would fill half of an emulated CPU."""
NOT_PROBED = ["blockio", "net"] if PATIENCE > 1 else []
"""Probes that take an emulated kernel a quarter of a minute to verify. `tests/kernel` tries them in the same guests."""
SETTINGS = """
interval_seconds = {interval}
[metrics]
port = 0
[probes]
disabled = {disabled}
[detection]
baselines_file = ""
[cluster]
first_report_seconds = 1.0
[strategies.features]
BEMemoryEvict = {evict}
[enforcer]
enabled = true
strategies = ["*"]
handover_seconds = 60
evict = {evict}
evict_ownerless = {evict}
only = ["/kubepods", "/kubepods/*", "/kubepods.slice", "/kubepods.slice/*"]
state_dir = "{folder}/state"
audit_file = "{folder}/audit.jsonl"
[nri]
socket = "{node.runtime.nri_socket}"
[prediction]
directory = "{folder}/prediction"
[kubelet]
endpoint = "{node.kubelet.url}"
ca_file = "{node.keys.authority.pair.certificate}"
client_certificate = "{node.keys.agent.certificate}"
client_key = "{node.keys.agent.key}"
cri_socket = "{node.runtime.socket}"
root_directory = "{node.directory}/kubelet"
pod_resources_socket = "{node.directory}/kubelet/pod-resources/kubelet.sock"
"""


@dataclass
class Agent:
    """An agent of one node; `folder` keeps its state between one run and the next."""

    node: Node
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> Path:
        """Its log."""
        return self.folder / "log"

    def check(self) -> str:
        """Return the end of its log; raises AssertionError where it has ended."""
        return alive(self.process, self.log)()

    def metric(self, name: str) -> float:
        """Return the sum of a metric's samples."""
        port = re.findall(r"metrics on http://[\d.]+:(\d+)/", self.log.read_text())[-1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
            text = response.read().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in re.findall(rf"^{name}[ {{].*$", text, re.MULTILINE))

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal."""
        self.process.send_signal(number)
        self.process.wait(60 * PATIENCE)

    def again(self) -> None:
        """Start it anew with the state that it left."""
        self.process = _start(self.node, self.folder)

    def handover_until(self) -> float | None:
        """Return until when a successor may take over, on the monotonic clock; None where nothing is handed over."""
        return decode((self.folder / "state" / "journal").read_bytes()).handover_until

    def held(self, kind: Kind) -> dict[str, JournalEntry]:
        """Return what the journal holds of this kind."""
        journal = self.folder / "state" / "journal"
        live = decode(journal.read_bytes()).live if journal.exists() else {}
        return {key: entry for key, entry in live.items() if entry.kind is kind}

    def lost(self, kind: Kind) -> dict[str, str]:
        """Return attributes that the journal holds and that have another value than ours, with what they have."""
        found = {key: entry.attribute.read() for key, entry in self.held(kind).items()}
        entries = self.held(kind)  # read again: what was changed or dropped meanwhile is no loss
        return {
            key: f"{sorted(texts)}, not {entries[key].ours}"
            for key, texts in found.items()
            if texts is not None and key in entries and not texts <= set(entries[key].ours)
        }

    def told(self, outcome: str) -> int:
        """Return how many lines of the audit have this outcome."""
        audit = self.folder / "audit.jsonl"
        return audit.read_text().count(f'"outcome":"{outcome}"') if audit.exists() else 0

    def restore(self) -> str:
        """Restore everything, protocol state too, as for an uninstallation; return what is said."""
        command = [*KOORDLET, "restore", "--all", "--config", self.folder / "koordlet.toml"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@contextlib.contextmanager
def agent_running(node: Node, folder: Path, *, evict: bool = False, more: str = "") -> Iterator[Agent]:
    """The agent, with `more` settings; in the end everything that it set is restored."""
    chosen = {"interval": INTERVAL_SECONDS, "disabled": NOT_PROBED, "evict": str(evict).lower()}
    text = SETTINGS.format(folder=folder, node=node, **chosen)
    (folder / "koordlet.toml").write_text(text + more)
    agent = Agent(node, folder, _start(node, folder))
    try:
        wait_for(lambda: "measuring with" in agent.log.read_text(), check=agent.check, interval_seconds=0.1)
        yield agent
    finally:
        if agent.process.poll() is None:
            agent.end(signal.SIGINT)
        agent.restore()


def _start(node: Node, folder: Path) -> subprocess.Popen[bytes]:
    command = [*KOORDLET, "run", "--enforce", "--config", folder / "koordlet.toml"]
    command += ["--node", node.name, "--kubeconfig", node.agent_kubeconfig]
    with (folder / "log").open("a") as stream:
        return subprocess.Popen(command, stderr=stream)
