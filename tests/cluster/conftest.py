"""The servers that the cluster tests run against: the twin always, a real one where the environment has it.

KUBEBUILDER_ASSETS names a folder with kube-apiserver and etcd; KUBECONFIG a cluster that may be written to.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cluster import (
    NAMESPACES,
    NODES,
    PODS,
    Client,
    ClientSettings,
    DeleteOptions,
    Document,
    Key,
    connect,
)
from cluster.twin import UNLIMITED, Twin, TwinSettings
from tests.cluster import apiserver


@dataclass(frozen=True)
class Site:
    """A server under test: a client of it, a namespace of one's own, and a prefix for cluster-wide names."""

    client: Client
    namespace: str
    connect: Callable[[ClientSettings], Client]

    def key(self, name: str) -> Key:
        return Key(self.namespace, name)

    def pod(self, name: str, **extra: Any) -> Document:
        return pod(name, self.namespace, **extra)


def pod(name: str, namespace: str, *, labels: dict[str, str] | None = None, **spec: Any) -> Document:
    container = {"name": "main", "image": "registry.invalid/app"}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"schedulerName": "koord-scheduler", "containers": [container], **spec},
    }


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin(TwinSettings(bookmark_seconds=0.2)) as running:
        yield running


def _kubeconfig(request: pytest.FixtureRequest) -> Path:
    if request.param == "KUBECONFIG":
        return Path(os.environ["KUBECONFIG"])
    path: Path = request.getfixturevalue("own_apiserver")
    return path


@pytest.fixture(scope="session")
def own_apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with apiserver.running(Path(os.environ["KUBEBUILDER_ASSETS"]), tmp_path_factory.mktemp("apiserver")) as file:
        yield file


REAL = ("KUBEBUILDER_ASSETS", "KUBECONFIG")
"""Environment variables that give a real API server."""


@pytest.fixture(params=["twin", *(name for name in REAL if os.environ.get(name))])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    opened: list[Client] = []
    if request.param == "twin":
        twin: Twin = request.getfixturevalue("twin")
        make: Callable[[ClientSettings], Client] = twin.client
    else:
        file = _kubeconfig(request)

        def make(settings: ClientSettings) -> Client:
            return connect(settings, kubeconfig=file)

    def tracked(settings: ClientSettings) -> Client:
        opened.append(make(settings))
        return opened[-1]

    client = tracked(UNLIMITED)
    namespace = f"koord-test-{Random().getrandbits(40):010x}"
    client.create(NAMESPACES, {"metadata": {"name": namespace}})
    yield Site(client, namespace, tracked)
    for item in client.list(PODS).items:
        if item.identity.namespace == namespace:
            client.delete(PODS, item.identity.key, DeleteOptions(grace_period_seconds=0))
    for node in client.list(NODES).items:
        if node.identity.name.startswith(namespace):
            client.delete(NODES, node.identity.key)
    client.delete(NAMESPACES, Key("", namespace))
    for each in opened:
        each.close()


PROMPTLY_SECONDS = 5.0
"""Limit of a stop that ends at once; one that waits for the server gives up after ten seconds."""


def config_map(site: Site, name: str, **data: str) -> Document:
    return {"metadata": {"name": name, "namespace": site.namespace}, "data": data}


def version(document: Document) -> str:
    text: str = document["metadata"]["resourceVersion"]
    return text
