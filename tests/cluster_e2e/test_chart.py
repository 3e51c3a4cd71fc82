"""The chart's DaemonSet on a real node, with its own service account, capabilities, seccomp profile and probes.

There is no registry here: the containers are busybox, and the agent's programs and libraries are mounted from the host
where an image would have them. Everything else is what the chart says.
"""

import re
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from api.crds import NODE_METRIC
from api.intents import Knob, Setting
from cluster import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    EVENTS,
    NAMESPACES,
    PODS,
    Binding,
    DeleteOptions,
    Document,
    Key,
    Query,
    Resource,
    bind,
    custom,
)
from koordlet.config import EnforcerSettings
from koordlet.enforcer.lifecycle import open_enforcer
from koordlet.host.files import HostTree
from koordlet.kube.rollout import restore_nodes
from tests.cgroups import CgroupTree, TestCgroup
from tests.cluster_e2e.conftest import Pods, container_id
from tests.cluster_e2e.images import BUSYBOX
from tests.cluster_e2e.node import Node
from tests.cluster_e2e.test_koordlet import BUSY, settings_below
from tests.cluster_e2e.test_node import SLEEP
from tests.deploy.charts import ROOT, documents
from tests.waiting import wait_for

pytestmark = pytest.mark.cluster

NAMESPACE = "koord-system"
ADMISSION = "admissionregistration.k8s.io"
RBAC = "rbac.authorization.k8s.io"
KINDS: dict[str, Resource[Any]] = {
    "ServiceAccount": Resource("ServiceAccount", "serviceaccounts", dict),
    "ConfigMap": Resource("ConfigMap", "configmaps", dict),
    "ClusterRole": Resource("ClusterRole", "clusterroles", dict, RBAC, "v1", namespaced=False),
    "ClusterRoleBinding": Resource("ClusterRoleBinding", "clusterrolebindings", dict, RBAC, "v1", namespaced=False),
    "Role": Resource("Role", "roles", dict, RBAC, "v1"),
    "RoleBinding": Resource("RoleBinding", "rolebindings", dict, RBAC, "v1"),
    "DaemonSet": DAEMON_SETS,
    "ValidatingAdmissionPolicy": Resource(
        "ValidatingAdmissionPolicy", "validatingadmissionpolicies", dict, ADMISSION, "v1", namespaced=False
    ),
    "ValidatingAdmissionPolicyBinding": Resource(
        "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", dict, ADMISSION, "v1", namespaced=False
    ),
}
SYSTEM = ("/usr", "/lib", "/lib64", "/etc/ssl")
"""Directories of the host with the interpreter and its libraries."""
CAPABILITIES = {"BPF": 39, "PERFMON": 38, "DAC_OVERRIDE": 1, "SYS_RESOURCE": 24}


def with_programs_of_the_host(daemon_set: Document, node: Node) -> Document:
    """The DaemonSet with busybox, the host's interpreter and this tree in place of the image."""
    spec = daemon_set["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    everything = [container, *spec.get("initContainers", ())]
    for each in everything:
        each |= {"image": BUSYBOX, "imagePullPolicy": "Never"}
        each["command"] = [sys.executable, "-m", *each["command"]]
    for volume in spec["volumes"]:
        if volume["name"] in ("run", "state", "log"):
            volume["hostPath"]["path"] = str(node.directory / f"koord-{volume['name']}")
    venv = Path(sys.prefix).resolve()
    for number, path in enumerate([*SYSTEM, *sorted({str(ROOT), str(venv)})]):
        spec["volumes"].append({"name": f"image-{number}", "hostPath": {"path": path}})
        for each in everything:
            each["volumeMounts"].append({"name": f"image-{number}", "mountPath": path, "readOnly": True})
    server = urlsplit(node.url)
    for each in everything:
        each["env"] = [*each.get("env", ()), {"name": "PYTHONPATH", "value": str(ROOT)}]
    container["env"] += [
        # No kube-proxy runs here, so the service's address leads nowhere.
        {"name": "KUBERNETES_SERVICE_HOST", "value": str(server.hostname)},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(server.port)},
    ]
    return daemon_set


@contextmanager
def installed(node: Node, values: Mapping[str, Any]) -> Iterator[Document]:
    """The chart on the node; yields the agent's pod when it is Ready."""
    client = node.client
    if client.find(NAMESPACES, Key("", NAMESPACE)) is None:
        client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    for path in sorted((ROOT / "deploy" / "crds").glob("*.yaml")):
        definition = yaml.safe_load(path.read_text())
        if client.find(CUSTOM_RESOURCE_DEFINITIONS, Key("", definition["metadata"]["name"])) is None:
            client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    made: list[tuple[Resource[Any], Key]] = []
    try:
        for document in documents(values):
            kind = KINDS[document["kind"]]
            if kind is DAEMON_SETS:
                document = with_programs_of_the_host(document, node)
            client.create(kind, document)
            made.append((kind, Key(NAMESPACE if kind.namespaced else "", document["metadata"]["name"])))
        pod = wait_for(lambda: agents(node), interval_seconds=0.2)[0]
        key = Key(NAMESPACE, pod["metadata"]["name"])
        # The scheduler's part: the pod asks for this node by its affinity.
        bind(client, Binding(key, pod["metadata"]["uid"], node.name))
        wait_for(lambda: is_ready(client.get(PODS, key)), 60, check=lambda: story(node), interval_seconds=0.5)
        yield client.get(PODS, key)
    finally:
        for kind, key in reversed(made):
            client.delete(kind, key, DeleteOptions(propagation_policy="Foreground"))
        wait_for(lambda: not agents(node), interval_seconds=0.2)


def agents(node: Node) -> list[Document]:
    return [item.value for item in node.client.list(PODS, Query(NAMESPACE)).items]


def is_ready(pod: Document) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or ())


def story(node: Node) -> str:
    """What became of the agents: statuses, Events and logs."""
    statuses = [pod["status"] for pod in agents(node)]
    events = [item.value.get("note", "") for item in node.client.list(EVENTS, Query(NAMESPACE)).items]
    return f"{statuses}\n{events}\n{log_of(node)}"


def log_of(node: Node) -> str:
    """The agents' logs."""
    return "\n".join(path.read_text() for path in sorted(node.directory.glob(f"pod-logs/{NAMESPACE}_*/*/*.log")))[
        -6000:
    ]


def scrape(pod: Document, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:9316{path}", timeout=30) as response:
        return str(response.read().decode())


def status_of(pod: Document) -> dict[str, str]:
    """/proc/PID/status of the agent."""
    container = container_id(pod)
    (procs,) = Path("/sys/fs/cgroup/cpu").glob(f"kubepods/**/{container}/cgroup.procs")
    status = Path(f"/proc/{procs.read_text().split()[0]}/status").read_text()
    return dict(re.findall(r"^(\w+):\s+(.*)$", status, re.MULTILINE))


def capability_set(names: list[str]) -> int:
    return sum(1 << CAPABILITIES[name] for name in names)


def granted_here(names: list[str]) -> list[str]:
    """Those that this machine has itself: a runtime starts no container with others."""
    (bounding,) = re.findall(r"^CapBnd:\s+(\w+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return [name for name in names if int(bounding, 16) >> CAPABILITIES[name] & 1]


def values_of(node: Node, **koordlet: object) -> dict[str, Any]:
    """The chart's values for this node, whose kubelet and runtime are at unusual places."""
    settings = f"""interval_seconds = 0.5
[metrics]
address = "0.0.0.0"
[cluster]
enabled = true
first_report_seconds = 1.0
[enforcer]
only = ["/kubepods*", "/koord-test-*"]
[kubelet]
endpoint = "{node.kubelet.url}"
cri_socket = "{node.runtime.socket}"
"""
    places = {
        "runtimeDirectory": str(node.directory),
        "kubeletDirectory": str(node.directory / "kubelet"),
        "nriDirectory": str(node.directory / "nri"),
    }
    rights = {"observe": ["BPF", "PERFMON"], "enforce": granted_here(["DAC_OVERRIDE", "SYS_RESOURCE"]), "network": []}
    return {"koordlet": {"settings": settings, "capabilities": rights, **places, **koordlet}}


def test_the_agent_becomes_ready_and_measures_pods_with_two_capabilities(node: Node, pods: Pods) -> None:
    with installed(node, values_of(node)) as agent:
        status = status_of(agent)
        assert int(status["CapEff"], 16) == capability_set(["BPF", "PERFMON"])
        assert status["NoNewPrivs"] == "1"
        assert status["Seccomp"] == "2"
        assert scrape(agent, "/healthz") == "ok\n"
        pods.run("busy", BUSY)
        wait_for(
            lambda: f'namespace="{pods.namespace}"' in scrape(agent), interval_seconds=0.5, check=lambda: log_of(node)
        )
        text = scrape(agent)
        for probe in ("cpu", "memory", "blockio"):
            assert f'koord_capability{{name="{probe}"}} 1.0' in text
        log = log_of(node)
        assert "orbidden" not in log
        assert "Traceback" not in log


def test_the_node_reports_its_usage_and_its_token_suffices(node: Node, pods: Pods) -> None:
    with installed(node, values_of(node)):
        pods.run("busy", BUSY)
        metric = Key("", node.name)

        def reported() -> list[str]:
            found = node.client.find(custom(NODE_METRIC), metric)
            status = found.status if found is not None else None
            return [pod.name for pod in (status.pods_metric or ()) if pod.namespace == pods.namespace] if status else []

        assert wait_for(reported, 90, check=lambda: log_of(node), interval_seconds=1.0) == ["busy"]
        assert "orbidden" not in log_of(node)


def test_the_enforcing_agent_has_its_capabilities_and_changes_no_pod_without_need(node: Node, pods: Pods) -> None:
    added = granted_here(["DAC_OVERRIDE", "SYS_RESOURCE"])
    pods.run("one", SLEEP)
    before = settings_below(Path("/sys/fs/cgroup"))
    with installed(node, values_of(node, enforce=True)) as agent:
        status = status_of(agent)
        assert int(status["CapEff"], 16) == capability_set(["BPF", "PERFMON", *added])
        assert "read-only" not in log_of(node).lower()
    after = settings_below(Path("/sys/fs/cgroup"))
    pod_settings = {path for path in before if "/pod" in path}
    assert {path for path in pod_settings & after.keys() if before[path] != after[path]} == set()


@pytest.fixture
def left_action(node: Node) -> Iterator[TestCgroup]:
    """A cgroup with a quota and a weight of an agent on this node that was killed."""
    with CgroupTree.detect().make_cgroup("left") as made:
        settings = EnforcerSettings(
            enabled=True, strategies=("*",), state_dir=str(node.directory / "koord-state"), audit_file=""
        )
        enforcer = open_enforcer(settings, HostTree())
        quota = Setting(strategy="s", target=made.path, knob=Knob.CPU_MAX, value="20000 100000", reason="-")
        # More than was found, which a cgroup without a class may be given.
        weight = Setting(
            strategy="runtime_hooks",
            target=made.path,
            knob=Knob.CPU_WEIGHT,
            value="200",
            reason="-",
            protocol_state=True,
        )
        enforcer.step([quota, weight])
        enforcer._journal.close()
        yield made


def limits(cgroup: TestCgroup) -> tuple[str, str]:
    """Quota and weight or shares."""
    v2 = (cgroup.cpu_dir / "cpu.max").exists()
    names = ("cpu.max", "cpu.weight") if v2 else ("cpu.cfs_quota_us", "cpu.shares")
    quota, weight = ((cgroup.cpu_dir / name).read_text().split()[0] for name in names)
    return quota.replace("-1", "max"), weight


def test_an_observing_agent_starts_after_the_actions_of_an_enforcing_one_are_restored(
    node: Node, left_action: TestCgroup
) -> None:
    before = limits(left_action)
    assert before[0] == "20000"
    with installed(node, values_of(node)):
        assert limits(left_action) == ("max", before[1]), log_of(node)


def test_before_an_uninstallation_every_node_restores_all(node: Node, left_action: TestCgroup) -> None:
    _, weight = limits(left_action)
    with installed(node, values_of(node, enforce=True)) as first:
        assert limits(left_action) == ("max", weight), log_of(node)
        done: list[int | None] = []
        key = Key(NAMESPACE, "koordlet")
        asking = threading.Thread(target=lambda: done.append(restore_nodes(node.client, key, 90.0)))
        asking.start()

        def successor() -> Document | None:
            pods = [pod for pod in agents(node) if pod["metadata"]["uid"] != first["metadata"]["uid"]]
            return pods[0] if pods else None

        pod = wait_for(successor, 90, check=lambda: story(node), interval_seconds=0.2)
        bind(node.client, Binding(Key(NAMESPACE, pod["metadata"]["name"]), pod["metadata"]["uid"], node.name))
        asking.join()
        assert done == [0], story(node)
        quota, after = limits(left_action)
        assert (quota, after != weight) == ("max", True)


@pytest.mark.skipif(not Path("/sys/fs/cgroup/memory").is_dir(), reason="on v2 a container may not leave its cgroup")
def test_the_guardian_outlives_the_container(node: Node) -> None:
    procs = Path("/sys/fs/cgroup/memory/koord-guardian/cgroup.procs")
    with installed(node, values_of(node, enforce=True)):
        wait_for(lambda: procs.exists() and procs.read_text().split(), check=lambda: log_of(node))
    wait_for(lambda: not procs.exists() or not procs.read_text().split())


def test_privileged_works_too(node: Node) -> None:
    with installed(node, values_of(node, privileged=True)) as agent:
        status = status_of(agent)
        assert status["Seccomp"] == "0"
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16)
        assert 'koord_capability{name="cpu"} 1.0' in scrape(agent)
