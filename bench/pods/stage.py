"""Stage of the benchmark: a real cluster of one node, its pods, their burners, the agent and the clients."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from bench.pods.roles import NAMESPACE, ROLES, SERVICE, Role, document
from cluster import NAMESPACES, PODS, Document, Key
from koordlet.demo import batch, service
from koordlet.demo.stage import Records
from koordlet.host.cgroups.hierarchies import find_hierarchies
from koordlet.host.files import HostTree
from tests.cluster_e2e.images import BUSYBOX
from tests.cluster_e2e.node import SERVICE_ACCOUNTS, Node, node_running
from tests.waiting import wait_for

_SETTINGS = """
[metrics]
port = {port}
[detection]
baselines_file = ""
[enforcer]
state_dir = "{directory}/state"
audit_file = "{directory}/audit.jsonl"
[kubelet]
pods_from = "apiserver"
cri_socket = "{socket}"
root_directory = "{kubelet}"
pod_resources_socket = "{kubelet}/pod-resources/kubelet.sock"
"""
METRICS_PORT = 18099
START_SECONDS = 60.0


@dataclass
class PodStage:
    """The node with the pods of all roles; burners are stopped until they are let run."""

    node: Node
    directory: Path
    service_seconds: float
    _pids: dict[str, list[int]] = field(default_factory=dict)
    _agent: subprocess.Popen[bytes] | None = None

    @property
    def audit(self) -> Path:
        """Path of the agent's audit log."""
        return self.directory / "audit.jsonl"

    @property
    def log(self) -> Path:
        """Path of the agent's log."""
        return self.directory / "koordlet.log"

    def create_pods(self, workers: int) -> None:
        """Create the pods, wait until all run, and stop the burners."""
        blocks = service.blocks_for(self.service_seconds)
        client = self.node.client
        kubectl = [self.node.assets / "kubectl", f"--kubeconfig={self.node.kubeconfig}"]
        subprocess.run([*kubectl, "apply", "--filename", "deploy/crds"], check=True, capture_output=True)
        client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        wait_for(lambda: client.find(SERVICE_ACCOUNTS, Key(NAMESPACE, "default")), START_SECONDS)
        folder, path = str(self.directory), str(Path.cwd())
        for role in ROLES:
            pod = document(
                role, node=self.node.name, image=BUSYBOX, blocks=blocks, workers=workers, folder=folder, path=path
            )
            if role.static:
                (self.node.kubelet.static_pods / f"{role.name}.json").write_bytes(msgspec.json.encode(pod))
            else:
                client.create(PODS, pod)
        cpu = find_hierarchies(HostTree(Path("/"))).cpu
        for role in ROLES:
            pod = wait_for(partial(self._running, role), START_SECONDS, check=partial(self._status, role))
            self._pids[role.name] = wait_for(partial(_burner_pids, cpu, pod, workers), START_SECONDS)
            self.stop_burner(role)

    def _pod(self, role: Role) -> Document | None:
        name = f"{role.name}-{self.node.name}" if role.static else role.name
        return self.node.client.find(PODS, Key(role.namespace, name))

    def _running(self, role: Role) -> Document | None:
        pod = self._pod(role)
        return pod if pod and pod["status"].get("phase") == "Running" else None

    def _status(self, role: Role) -> str:
        return f"{role.name}: {(self._pod(role) or {}).get('status', 'not created')}"

    def run_burner(self, role: Role) -> None:
        """Let the burner of a pod run."""
        self._signal(role, signal.SIGCONT)

    def stop_burner(self, role: Role) -> None:
        """Stop the burner of a pod."""
        self._signal(role, signal.SIGSTOP)

    def _signal(self, role: Role, number: int) -> None:
        for pid in self._pids[role.name]:
            os.kill(pid, number)

    def blocks_done(self, role: Role) -> int:
        """Return the blocks of a role's burner so far."""
        return batch.blocks_done(self.directory / f"{role.name}.blocks")

    def start_client(self, role: Role, rate: float, seconds: float, seed: int) -> Records:
        """Start open-loop load on the service of a role."""
        program = [sys.executable, "-m", "koordlet.demo.client", str(role.port), str(rate), str(seconds), str(seed)]
        process = subprocess.Popen(program, stdout=subprocess.PIPE)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        return Records(process.stdout)

    def start_agent(self, *, acts: bool) -> None:
        """Start the agent in cluster mode and wait until its first tick is served."""
        path = self.directory / "koordlet.toml"
        kubelet = self.node.directory / "kubelet"
        text = _SETTINGS.format(
            port=METRICS_PORT, directory=self.directory, socket=self.node.runtime.socket, kubelet=kubelet
        )
        path.write_text(text)
        program = [sys.executable, "-m", "koordlet", "run", "--config", str(path), "--node", self.node.name]
        program += ["--kubeconfig", str(self.node.kubeconfig), *(["--enforce"] if acts else [])]
        with self.log.open("ab") as log:
            self._agent = subprocess.Popen(program, stdout=log, stderr=log)
        time.sleep(8.0)

    def stop_agent(self) -> None:
        """Stop the agent by SIGTERM; it restores its actions."""
        if self._agent is None:
            return
        self._agent.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._agent.wait(30)
        if self._agent.poll() is None:
            self._agent.kill()
            self._agent.wait()
        self._agent = None

    def check(self) -> None:
        """Raise RuntimeError if the agent has exited."""
        if self._agent is not None and self._agent.poll() is not None:
            raise RuntimeError(f"the agent ended: {self.log.read_text(errors='replace')[-600:]}")

    def close(self) -> None:
        """Stop the agent and let stopped burners run, so that they can be ended."""
        self.stop_agent()
        for role in ROLES:
            with contextlib.suppress(ProcessLookupError, KeyError):
                self.run_burner(role)


def _burner_pids(cpu: Path, pod: Document, workers: int) -> list[int] | None:
    """Return the processes of a pod's burner, or None before all of them run."""
    uid = pod["metadata"].get("annotations", {}).get("kubernetes.io/config.mirror") or pod["metadata"]["uid"]
    pids = []
    for found in cpu.glob(f"kubepods*/**/*{uid}*/*/cgroup.procs"):
        pids += [int(word) for word in found.read_text().split()]
    burners = [pid for pid in pids if b"koordlet.demo.batch" in _command(pid)]
    services = [pid for pid in pids if b"koordlet.demo.service" in _command(pid)]
    wants_service = any(each["name"] == SERVICE for each in pod["spec"]["containers"])
    return burners if len(burners) >= workers and (services or not wants_service) else None


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@contextmanager
def staged(assets: Path, directory: Path, *, service_seconds: float, workers: int) -> Iterator[PodStage]:
    """Start the cluster and its pods; both are always removed."""
    with node_running(assets) as node:
        stage = PodStage(node, directory, service_seconds)
        try:
            stage.create_pods(workers)
            yield stage
        finally:
            stage.close()
