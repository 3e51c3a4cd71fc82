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
        pod = self.pod_on(node)
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            die("kubectl is not on the PATH", hint="install kubectl; it holds the credentials for exec")
        options = []
        if self.chosen.kubeconfig:
            options.append(f"--kubeconfig={self.chosen.kubeconfig}")
        if self.chosen.context:
            options.append(f"--context={self.chosen.context}")
        if self.chosen.server:
            options.append(f"--server={self.chosen.server}")
        interactive = ["-it"] if terminal and os.isatty(0) else []
        words = [
            kubectl,
            *options,
            "exec",
            "-n",
            pod.namespace,
            *interactive,
            pod.name,
            "-c",
            CONTAINER,
            "--",
            *command,
        ]
        return subprocess.run(words, check=False).returncode
