"""The kubelet's settings and command."""

import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.cluster_e2e.cgroup_layout import DRIVER
from tests.cluster_e2e.control_plane import HOST, NODE_NAME, Credentials
from tests.cluster_e2e.machine import NODE_ADDRESS
from tests.cluster_e2e.runtime import Runtime


@dataclass(frozen=True)
class Kubelet:
    """A kubelet on this machine."""

    directory: Path
    port: int
    health_port: int

    @property
    def url(self) -> str:
        """Address of its API."""
        return f"https://{NODE_ADDRESS}:{self.port}"

    def configure(self, keys: Credentials, runtime: Runtime, extra: Mapping[str, Any]) -> None:
        """Write its KubeletConfiguration; `extra` has further fields, as `{"cpuManagerPolicy": "static"}`."""
        document = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": NODE_ADDRESS,
            "port": self.port,
            "readOnlyPort": 0,
            "healthzBindAddress": HOST,
            "healthzPort": self.health_port,
            "tlsCertFile": str(keys.node.certificate),
            "tlsPrivateKeyFile": str(keys.node.key),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(keys.authority.pair.certificate)},
            },
            # What the API server allowed is believed this long while it is away; 5 min by default.
            "authorization": {"mode": "Webhook", "webhook": {"cacheAuthorizedTTL": "10s"}},
            "containerRuntimeEndpoint": f"unix://{runtime.socket}",
            "staticPodPath": str(self.static_pods),
            "cgroupDriver": DRIVER,
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "resolvConf": "",
            "podLogsDir": str(self.directory / "pod-logs"),
            "volumePluginDir": str(self.directory / "kubelet" / "volume-plugins"),
            # A full disk of the machine is no matter of these tests.
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            **extra,
        }
        self.static_pods.mkdir()
        self.settings.write_bytes(msgspec.json.encode(document))

    def answers(self) -> bool:
        """Return whether it is healthy."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.health_port}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    @property
    def settings(self) -> Path:
        """Its configuration file."""
        return self.directory / "kubelet.json"

    @property
    def static_pods(self) -> Path:
        """Folder of static pods."""
        return self.directory / "static-pods"

    def command(self, assets: Path, kubeconfig: Path) -> list[str | Path]:
        """Command of the kubelet."""
        return [
            assets / "kubelet",
            f"--config={self.settings}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={NODE_ADDRESS}",
            f"--root-dir={self.directory / 'kubelet'}",
            f"--cert-dir={self.directory / 'kubelet' / 'pki'}",
        ]
