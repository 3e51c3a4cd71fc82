"""A real kube-apiserver with its etcd, from a folder of binaries, for the length of a test session."""

import contextlib
import os
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

TOKEN = "koord-tests"


@contextlib.contextmanager
def running(assets: Path, scratch: Path, further: Sequence[str] = ()) -> Iterator[Path]:
    """Start etcd and kube-apiserver of `assets`; yields a kubeconfig file of an administrator.

    `further` are arguments of the kube-apiserver.
    """
    etcd_url = f"http://127.0.0.1:{_free_port()}"
    etcd = [
        str(assets / "etcd"),
        f"--data-dir={scratch / 'etcd'}",
        f"--listen-client-urls={etcd_url}",
        f"--advertise-client-urls={etcd_url}",
        f"--listen-peer-urls=http://127.0.0.1:{_free_port()}",
        "--unsafe-no-fsync",
    ]
    port = _free_port()
    server = [*_apiserver_command(assets, scratch, etcd_url, port), *further]
    with process(etcd, scratch / "etcd.log"), process(server, scratch / "apiserver.log"):
        _wait_ready(port, scratch)
        yield _kubeconfig(scratch, port)


def _apiserver_command(assets: Path, scratch: Path, etcd_url: str, port: int) -> list[str]:
    key = scratch / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    tokens = scratch / "tokens.csv"
    tokens.write_text(f"{TOKEN},admin,admin,system:masters\n")
    return [
        str(assets / "kube-apiserver"),
        f"--etcd-servers={etcd_url}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={scratch / 'certificates'}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://127.0.0.1",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.0.0.0/24",
        # Without controllers no namespace gets its default account, which pods would wait for.
        "--disable-admission-plugins=ServiceAccount",
    ]


def _kubeconfig(scratch: Path, port: int) -> Path:
    file = scratch / "kubeconfig"
    cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "tests", "user": {"token": TOKEN}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
    }
    file.write_text(yaml.safe_dump(document))
    return file


@contextlib.contextmanager
def process(command: list[str], log: Path) -> Iterator[None]:
    """Run a program for as long as the block, its output in a file."""
    with log.open("wb") as output:
        started = subprocess.Popen(command, stdout=output, stderr=output, env=dict(os.environ))
        try:
            yield
        finally:
            started.terminate()
            try:
                started.wait(30)
            except subprocess.TimeoutExpired:  # a watch that a failed test left open keeps the server waiting
                started.kill()
                started.wait()


def _wait_ready(port: int, scratch: Path) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    request = urllib.request.Request(f"https://127.0.0.1:{port}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, OSError):
            if urllib.request.urlopen(request, context=context, timeout=2).status == 200:
                return
        time.sleep(0.5)
    raise TimeoutError(f"kube-apiserver is not ready; see {scratch / 'apiserver.log'}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
