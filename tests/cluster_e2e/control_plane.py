"""etcd, kube-apiserver and kube-controller-manager, with certificates of their own."""

import base64
import socket
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.certificates import Authority, Pair, pair_in, signing_key
from tests.cluster_e2e.machine import NODE_ADDRESS
from tests.cluster_e2e.programs import Programs
from tests.waiting import wait_for

HOST = "127.0.0.1"
NODE_NAME = "koord-node"
SERVICE_ADDRESS = "10.96.0.1"
HOST_OF_GUEST = "10.0.2.2"
"""Address under which a guest of QEMU's user network reaches this machine's loopback."""
CONTROL_PLANE = "KOORD_CONTROL_PLANE"
"""Variable with the place of a control plane that runs elsewhere, as `DIRECTORY=URL`."""
START_SECONDS = 120.0
AGENT_USER = "koordlet"
AUDIT_LOG = "requests.log"
"""File of the agent's requests, below the directory of the control plane."""
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [AGENT_USER]}, {"level": "None"}],
}
ISSUER = "https://kubernetes.default.svc.cluster.local"


@dataclass(frozen=True)
class Credentials:
    """Certificates of the cluster, in one folder."""

    authority: Authority
    apiserver: Pair
    admin: Pair
    controllers: Pair
    node: Pair
    kubelet_client: Pair
    agent: Pair
    """Of the node agent, whose requests the API server's audit log names by its user `AGENT_USER`."""
    accounts: Pair
    """Key pair of service account tokens."""

    @classmethod
    def make(cls, folder: Path) -> "Credentials":
        """Issue everything anew."""
        authority = Authority(folder, "ca")
        masters = "/O=system:masters"
        services = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
        addresses = (NODE_ADDRESS, SERVICE_ADDRESS, HOST, HOST_OF_GUEST)
        names = (*(f"DNS:{name}" for name in services), *(f"IP:{address}" for address in addresses))
        node = f"/O=system:nodes/CN=system:node:{NODE_NAME}"
        return cls(
            authority=authority,
            apiserver=authority.issue("apiserver", names=names),
            admin=authority.issue("admin", f"{masters}/CN=admin"),
            controllers=authority.issue("controllers", "/CN=system:kube-controller-manager"),
            node=authority.issue("node", node, names=(f"DNS:{NODE_NAME}", f"IP:{NODE_ADDRESS}")),
            kubelet_client=authority.issue("kubelet-client", f"{masters}/CN=kube-apiserver"),
            agent=authority.issue("agent", f"{masters}/CN={AGENT_USER}"),
            accounts=signing_key(folder),
        )

    @classmethod
    def found(cls, folder: Path) -> "Credentials":
        """Return what `make` has issued in this folder."""
        return cls(
            authority=Authority.found(folder, "ca"),
            apiserver=pair_in(folder, "apiserver"),
            admin=pair_in(folder, "admin"),
            controllers=pair_in(folder, "controllers"),
            node=pair_in(folder, "node"),
            kubelet_client=pair_in(folder, "kubelet-client"),
            agent=pair_in(folder, "agent"),
            accounts=Pair(folder / "accounts.pub", folder / "accounts.key"),
        )

    def kubeconfig(self, path: Path, url: str, pair: Pair) -> Path:
        """Write a kubeconfig that identifies by a certificate."""
        cluster = {"server": url, "certificate-authority-data": _base64(self.authority.pair.certificate)}
        user = {"client-certificate-data": _base64(pair.certificate), "client-key-data": _base64(pair.key)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "node",
            "clusters": [{"name": "node", "cluster": cluster}],
            "users": [{"name": "node", "user": user}],
            "contexts": [{"name": "node", "context": {"cluster": "node", "user": "node"}}],
        }
        path.touch(0o600)
        path.write_bytes(msgspec.json.encode(document))
        return path


@dataclass(frozen=True)
class Ports:
    """Free ports of the control plane."""

    etcd: int
    etcd_peer: int
    apiserver: int
    controllers: int
    address: str = NODE_ADDRESS
    """Where the API server listens: on the bridge, which pods reach too."""

    @property
    def url(self) -> str:
        """Address of the API server."""
        return f"https://{self.address}:{self.apiserver}"


def free_ports(count: int, host: str = HOST) -> list[int]:
    """Return ports that are free at this moment."""
    listeners = [socket.create_server((host, 0)) for _ in range(count)]
    ports = [int(listener.getsockname()[1]) for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def etcd_command(assets: Path, directory: Path, ports: Ports) -> list[str | Path]:
    """Command of etcd; it does not sync to disk, for nothing of it is to survive."""
    client, peer = f"http://{HOST}:{ports.etcd}", f"http://{HOST}:{ports.etcd_peer}"
    return [
        assets / "etcd",
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver_command(assets: Path, directory: Path, keys: Credentials, ports: Ports) -> list[str | Path]:
    """Command of kube-apiserver, which authorizes as most clusters do: nodes to their own objects, others by RBAC.

    The agent's requests are noted in `AUDIT_LOG`.
    """
    policy = directory / "audit-policy.json"
    policy.write_bytes(msgspec.json.encode(_AUDIT_POLICY))
    return [
        assets / "kube-apiserver",
        f"--etcd-servers=http://{HOST}:{ports.etcd}",
        f"--bind-address={ports.address}",
        f"--advertise-address={ports.address}",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={directory / AUDIT_LOG}",
        f"--secure-port={ports.apiserver}",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={keys.apiserver.certificate}",
        f"--tls-private-key-file={keys.apiserver.key}",
        f"--client-ca-file={keys.authority.pair.certificate}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={keys.kubelet_client.certificate}",
        f"--kubelet-client-key={keys.kubelet_client.key}",
        # No name server knows the node.
        "--kubelet-preferred-address-types=InternalIP",
        "--service-cluster-ip-range=10.96.0.0/16",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={keys.accounts.certificate}",
        f"--service-account-signing-key-file={keys.accounts.key}",
        "--profiling=false",
    ]


def controllers_command(assets: Path, keys: Credentials, ports: Ports, kubeconfig: Path) -> list[str | Path]:
    """Command of kube-controller-manager, which makes default service accounts and the pods of workloads."""
    return [
        assets / "kube-controller-manager",
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={HOST}",
        f"--secure-port={ports.controllers}",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={keys.accounts.key}",
        f"--root-ca-file={keys.authority.pair.certificate}",
        f"--cluster-signing-cert-file={keys.authority.pair.certificate}",
        f"--cluster-signing-key-file={keys.authority.pair.key}",
        "--allocate-node-cidrs=false",
    ]


@dataclass(frozen=True)
class ControlPlane:
    """A running control plane: its directory, and how to reach it."""

    directory: Path
    keys: Credentials
    url: str

    def kubeconfig(self, path: Path, pair: Pair) -> Path:
        """Write a kubeconfig that identifies by a certificate."""
        return self.keys.kubeconfig(path, self.url, pair)


def launch_control_plane(programs: Programs, assets: Path, address: str = NODE_ADDRESS) -> ControlPlane:
    """Start etcd, kube-apiserver and kube-controller-manager; wait until the API server is ready."""
    directory = programs.record.path
    keys = Credentials.make(directory / "pki")
    etcd, peer, apiserver, controllers = free_ports(4)
    ports = Ports(etcd, peer, apiserver, controllers, address)
    made = ControlPlane(directory, keys, ports.url)
    programs.launch("etcd", etcd_command(assets, directory, ports))
    programs.launch("kube-apiserver", apiserver_command(assets, directory, keys, ports))
    wait_for(lambda: is_ready(keys, ports.url), START_SECONDS, check=programs.check, interval_seconds=0.1)
    kubeconfig = made.kubeconfig(directory / "controllers.kubeconfig", keys.controllers)
    programs.launch("kube-controller-manager", controllers_command(assets, keys, ports, kubeconfig))
    return made


def elsewhere(place: str) -> ControlPlane | None:
    """Return the control plane of `DIRECTORY=URL`, which runs on another machine; None for an empty text."""
    folder, _, url = place.partition("=")
    return ControlPlane(Path(folder), Credentials.found(Path(folder) / "pki"), url) if place else None


def is_ready(keys: Credentials, url: str) -> bool:
    """Return whether the API server says that it is ready."""
    context = ssl.create_default_context(cafile=str(keys.authority.pair.certificate))
    context.load_cert_chain(keys.admin.certificate, keys.admin.key)
    try:
        with urllib.request.urlopen(f"{url}/readyz", context=context, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
