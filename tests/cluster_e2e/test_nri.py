"""The NRI plugin inside a real containerd: a container's first instruction already runs under its limits."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster import PODS, Document
from koordlet.hooks.decide import HookRules
from koordlet.hooks.node import NodeFacts
from koordlet.hooks.node_reader import NodeFactsReader
from koordlet.host.cgroups.hierarchies import find_hierarchies
from koordlet.host.files import HostTree
from koordlet.host.knobs.knobs import Knobs
from koordlet.identity.pods import NO_PODS
from koordlet.nri.host_facts import pod_bounds
from koordlet.nri.plugin import Plugin
from koordlet.nri.runtime_link import RuntimeLink
from koordlet.nri.settings import NriSettings
from koordlet.strategies.view import NodeInfo
from koordlet.topology.cpu_state import CpuStateReader
from tests.cluster_e2e.agent import INTERVAL_SECONDS
from tests.cluster_e2e.cgroup_layout import ROOT, pod_path
from tests.cluster_e2e.conftest import Pods
from tests.cluster_e2e.cri_calls import Cri
from tests.cluster_e2e.images import BUSYBOX
from tests.cluster_e2e.node import Node
from tests.cluster_e2e.objects import BATCH, BATCH_RESOURCES, install
from tests.waiting import alive, wait_for

pytestmark = pytest.mark.cluster

V1 = find_hierarchies(HostTree()).version == 1
FILES = (
    ("cpu/cpu.shares", "cpu/cpu.cfs_quota_us", "memory/memory.limit_in_bytes")
    if V1
    else ("cpu.weight", "cpu.max", "memory.max")
)
EXPECTED = ["512", "50000", str(64 << 20)] if V1 else ["20", "50000 100000", str(64 << 20)]
LABELS, ANNOTATIONS = BATCH["labels"], BATCH["annotations"]
COMMAND = ["cat", *(f"/sys/fs/cgroup/{name}" for name in FILES)]
MEASURED = 100


@pytest.fixture
def link(node: Node) -> Iterator[RuntimeLink]:
    """The plugin, not started yet."""
    tree = HostTree()
    base = NodeFacts(info=NodeInfo(cpus=(), memory_bytes=0))
    knobs = Knobs(tree)
    plugin = Plugin(
        HookRules(),
        NodeFactsReader(base, CpuStateReader(tree, lambda: NO_PODS).current),
        lambda: NO_PODS,
        v1=V1,
        bounds_of=lambda path: pod_bounds(knobs, path),
    )
    made = RuntimeLink(plugin, node.runtime.nri_socket, NriSettings(backoff_seconds=0.1))
    yield made
    made.close()


@pytest.fixture
def cri(node: Node, tmp_path: Path) -> Iterator[Cri]:
    made = Cri(node.runtime.socket, tmp_path)
    yield made
    made.close()


SETTINGS = """
interval_seconds = {interval}
[metrics]
enabled = false
[probes]
backend = "none"
[detection]
enabled = false
[enforcer]
enabled = true
strategies = ["runtime_hooks"]
state_dir = "{folder}/state"
audit_file = "{folder}/audit.jsonl"
[nri]
socket = "{runtime.nri_socket}"
[kubelet]
endpoint = "{kubelet.url}"
ca_file = "{keys.authority.pair.certificate}"
client_certificate = "{keys.admin.certificate}"
client_key = "{keys.admin.key}"
cri_socket = "{runtime.socket}"
relist_seconds = 1.0
"""


@contextmanager
def agent_running(node: Node, folder: Path) -> Iterator[Path]:
    """The agent, enforcing in the cluster; yields its log once the runtime asked it something."""
    config, log = folder / "koordlet.toml", folder / "log"
    given = {"runtime": node.runtime, "kubelet": node.kubelet, "keys": node.keys}
    config.write_text(SETTINGS.format(folder=folder, interval=INTERVAL_SECONDS / 2, **given))
    command = [sys.executable, "-m", "koordlet", "run", "--config", config, "--node", node.name]
    with log.open("w") as stream:
        process = subprocess.Popen([*command, "--kubeconfig", node.kubeconfig], stderr=stream)
    try:
        wait_for(lambda: "NRI: answering containerd" in log.read_text(), check=alive(process, log))
        yield log
    finally:
        process.terminate()
        process.wait(30)


def batch_pod(node: Node, pods: Pods, name: str, after: str = "true") -> None:
    """Create a batch pod whose first instruction writes what its cgroup files hold."""
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", f"{' '.join(COMMAND)} > /dev/termination-log; {after}"],
        "resources": BATCH_RESOURCES,
    }
    metadata = {"name": name, "namespace": pods.namespace, "labels": LABELS, "annotations": ANNOTATIONS}
    spec = {"nodeName": node.name, "restartPolicy": "Never", "containers": [container]}
    node.client.create(PODS, {"metadata": metadata, "spec": {**spec, "terminationGracePeriodSeconds": 1}})


def first_lines(pod: Document) -> list[str]:
    """What the pod wrote."""
    message: str = pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
    return message.split("\n")[: len(EXPECTED)]


def test_the_first_instruction_runs_under_its_limits(node: Node, pods: Pods, link: RuntimeLink) -> None:
    link.start()
    wait_for(lambda: link.connections)
    batch_pod(node, pods, "batch")
    assert first_lines(pods.await_phase("batch", "Succeeded")) == EXPECTED


def test_the_agent_sets_containers_at_once_and_pods_within_a_tick(node: Node, pods: Pods, tmp_path: Path) -> None:
    # Without a quota for all best-effort pods, under which single ones have none: earlier tests may have asked for it.
    install(node.client, node.name, {})
    batch_pod(node, pods, "before", "sleep 1000")
    uid = pods.await_phase("before", "Running")["metadata"]["uid"]
    with agent_running(node, tmp_path) as log:
        assert wait_for(lambda: files_of(uid) == EXPECTED, check=lambda: f"{files_of(uid)}: {log.read_text()}")
        batch_pod(node, pods, "after", "sleep 3")
        assert first_lines(pods.await_phase("after", "Succeeded")) == EXPECTED
    assert files_of(uid) == EXPECTED, "protocol state stays when the agent goes"


def files_of(uid: str) -> list[str]:
    """What the files of a pod's cgroup hold."""
    found = []
    for name in FILES:
        controller, _, file = name.rpartition("/")
        found.append(Path(f"{ROOT / controller}{pod_path(uid, 'BestEffort')}/{file}").read_text().strip())
    return found


def test_an_agent_that_is_away_keeps_nothing_from_starting(cri: Cri, link: RuntimeLink) -> None:
    link.start()
    wait_for(lambda: link.connections)
    link.close()
    sandbox = cri.sandbox("away", "/koord-nri/podaway", labels=LABELS, annotations=ANNOTATIONS)
    cri.start(cri.create(sandbox, "main", COMMAND))
    assert wait_for(lambda: cri.output("main"))[0] != EXPECTED[0]


def started_again(link: RuntimeLink) -> RuntimeLink:
    """The same plugin on a new connection."""
    made = RuntimeLink(link.plugin, link.path, NriSettings(backoff_seconds=0.1))
    made.start()
    wait_for(lambda: made.connections)
    return made


def milliseconds_to_create(cri: Cri, sandbox: tuple[str, bytes], names: list[str]) -> list[float]:
    """Time of each CreateContainer."""
    found = []
    for name in names:
        begun = time.perf_counter()
        container = cri.create(sandbox, name, COMMAND)
        found.append((time.perf_counter() - begun) * 1e3)
        cri.remove(container)
    return found


def test_a_container_is_created_hardly_later(cri: Cri, link: RuntimeLink) -> None:
    """Prints the time of CreateContainer with and without the plugin, in turns of ten."""
    sandbox = cri.sandbox("timed", "/koord-nri/podtimed", labels=LABELS, annotations=ANNOTATIONS)
    found: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(MEASURED // 10):
        connected = started_again(link)
        found[True] += milliseconds_to_create(cri, sandbox, [f"with-{turn}-{number}" for number in range(10)])
        connected.close()
        found[False] += milliseconds_to_create(cri, sandbox, [f"without-{turn}-{number}" for number in range(10)])
    for is_with, times in found.items():
        ordered = sorted(times)
        low, median, high = ordered[0], ordered[len(times) // 2], ordered[len(times) * 99 // 100]
        print(f"plugin {is_with}: least {low:.2f}, median {median:.2f}, p99 {high:.2f} ms of {len(times)}")
    answers = link.plugin.events["CreateContainer"]
    print(f"slowest answer {link.plugin.slowest_seconds * 1e3:.2f} ms of {answers}")
    assert answers == MEASURED
