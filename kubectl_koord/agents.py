"""The agent of a node: its pod, and commands in it by way of kubectl, which holds the user's credentials."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from cluster import PODS, Client, Key, Query
from cluster.command_line import Chosen, die

SELECTOR = "app.kubernetes.io/name=koordlet"
CONTAINER = "koordlet"


@dataclass(frozen=True, slots=True)
class Agents:
    """Agents of a cluster."""

    client: Client
    chosen: Chosen
    namespace: str

    def pod_on(self, node: str) -> Key:
        """Return the agent's pod on a node; exits with a message where none runs."""
        query = Query(self.namespace, labels=SELECTOR, fields=f"spec.nodeName={node},status.phase=Running")
        pods = self.client.list(PODS, query).items
        if not pods:
            die(
                f"no agent runs on node {node} in namespace {self.namespace}",
                hint=f"kubectl get pods -n {self.namespace} -o wide -l {SELECTOR}; --namespace names another",
            )
        return pods[0].identity.key

    def run_on(self, node: str, command: Sequence[str], *, terminal: bool = False) -> int:
        """Run a command in the agent's container and return its exit status."""
        options = ["-it"] if terminal and os.isatty(0) else []
        return subprocess.run(self._exec(node, options, command), check=False).returncode

    def told_by(self, node: str, command: Sequence[str]) -> str:
        """Run a command in the agent's container and return what it prints; exits with a message where it fails."""
        ran = subprocess.run(self._exec(node, [], command), check=False, capture_output=True, text=True)
        if ran.returncode:
            die(f"{' '.join(command)} on node {node}: {ran.stderr.strip() or f'exit status {ran.returncode}'}")
        return ran.stdout

    def _exec(self, node: str, options: Sequence[str], command: Sequence[str]) -> list[str]:
        pod = self.pod_on(node)
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            die("kubectl is not on the PATH", hint="install kubectl; it holds the credentials for exec")
        inside = ["exec", "-n", pod.namespace, *options, pod.name, "-c", CONTAINER]
        return [kubectl, *chosen_options(self.chosen), *inside, "--", *command]


def chosen_options(chosen: Chosen) -> list[str]:
    """Return the options by which kubectl, and programs of this project, find the same API server."""
    options = {"kubeconfig": chosen.kubeconfig, "context": chosen.context, "server": chosen.server}
    return [f"--{name}={value}" for name, value in options.items() if value]
