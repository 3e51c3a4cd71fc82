"""The node of these tests, and pods on it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FrameType

import pytest

from cluster import NAMESPACES, PODS, DeleteOptions, Document, Key, Query
from koordlet.host.files import HostTree
from koordlet.kubelet.settings import KubeletSettings
from koordlet.kubelet.source import PodSource
from tests.cluster_e2e.control_plane import CONTROL_PLANE
from tests.cluster_e2e.images import BUSYBOX, NoBusyboxError, busybox
from tests.cluster_e2e.machine import MachineBusyError
from tests.cluster_e2e.node import SERVICE_ACCOUNTS, START_SECONDS, Node, missing_binaries, node_running
from tests.cluster_e2e.record import NodeRunningError
from tests.waiting import wait_for

ASSETS = "KUBEBUILDER_ASSETS"


def why_not() -> str:
    """Return why no node can run here; empty where one can."""
    folder = os.environ.get(ASSETS)
    if not folder:
        return f"{ASSETS} is not set: a real node is tested by `make test-cluster`"
    if os.geteuid() != 0:
        return "a node needs root"
    try:
        busybox()
    except NoBusyboxError as error:
        return str(error)
    missing = missing_binaries(Path(folder))
    return f"{ASSETS}={folder} lacks {', '.join(missing)}" if missing else ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder, and skip it with the reason where no node can run."""
    here = Path(__file__).parent
    reason = why_not()
    for item in items:
        if here in item.path.parents and item.get_closest_marker("cluster") and reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print a failure at once: pytest's own summary is lost with a guest that does not come to its end."""
    if report.failed and CONTROL_PLANE in os.environ:
        print(f"\n{report.longreprtext}")


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    """The cluster, started for the first test that wants it; also removed when pytest is terminated."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        with node_running(Path(os.environ[ASSETS])) as running:
            yield running
    except (MachineBusyError, NodeRunningError) as error:
        pytest.fail(str(error))
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def settings(node: Node) -> KubeletSettings:
    """Settings that reach the kubelet and the runtime of the node."""
    return KubeletSettings(
        endpoint=node.kubelet.url,
        server_name=node.name,
        ca_file=str(node.keys.authority.pair.certificate),
        client_certificate=str(node.keys.admin.certificate),
        client_key=str(node.keys.admin.key),
        cri_socket=str(node.runtime.socket),
        pod_resources_socket=f"{node.directory}/kubelet/pod-resources/kubelet.sock",
        root_directory=f"{node.directory}/kubelet",
    )


@pytest.fixture
def source(node: Node, settings: KubeletSettings) -> Iterator[PodSource]:
    """The source of pods, running beside the node."""
    running = PodSource(settings, node.name, HostTree())
    running.start()
    wait_for(lambda: running.status().pods_from)
    yield running
    running.close()


class Pods:
    """Pods of one test, in a namespace of its own, bound to the node without a scheduler."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.namespace = f"test-{Random().getrandbits(32):08x}"
        node.client.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        accounts = Key(self.namespace, "default")
        wait_for(lambda: node.client.find(SERVICE_ACCOUNTS, accounts))

    def run(
        self,
        name: str,
        command: list[str],
        resources: Document | None = None,
        metadata: Document | None = None,
        **spec: object,
    ) -> Document:
        """Create a busybox pod and return it as soon as it runs; `metadata` has labels and annotations."""
        container = {
            "name": "main",
            "image": BUSYBOX,
            "imagePullPolicy": "Never",
            "command": command,
            "resources": resources or {},
        }
        body = {
            "metadata": {**(metadata or {}), "name": name, "namespace": self.namespace},
            "spec": {"nodeName": self.node.name, "containers": [container], "terminationGracePeriodSeconds": 1, **spec},
        }
        self.node.client.create(PODS, body)
        return self.await_phase(name, "Running")

    def await_phase(self, name: str, phase: str) -> Document:
        """Wait until a pod is in a phase."""
        key = Key(self.namespace, name)

        def reached() -> Document | None:
            pod = self.node.client.get(PODS, key)
            return pod if pod["status"].get("phase") == phase else None

        return wait_for(
            reached, START_SECONDS, check=lambda: str(self.node.client.get(PODS, key)["status"]), interval_seconds=0.2
        )

    def delete_all(self) -> None:
        """Delete the pods and wait until the kubelet has ended them."""
        client = self.node.client
        for item in client.list(PODS, Query(self.namespace)).items:
            client.delete(PODS, item.identity.key, DeleteOptions(grace_period_seconds=1))
        wait_for(lambda: not client.list(PODS, Query(self.namespace)).items, interval_seconds=0.2)
        client.delete(NAMESPACES, Key("", self.namespace))


@pytest.fixture
def pods(node: Node) -> Iterator[Pods]:
    """A namespace for this test's pods."""
    made = Pods(node)
    yield made
    made.delete_all()


def container_id(pod: Document) -> str:
    """Return the id of a pod's first container, without the runtime's name."""
    text: str = pod["status"]["containerStatuses"][0]["containerID"]
    return text.partition("://")[2]
