"""The image on a real node: agent and manager run from it as the chart has them, act, and leave no trace.

KOORD_IMAGE is the archive that `python -m deploy.release image` makes. Nothing of the host's interpreter or libraries
is in these containers.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cluster import DEPLOYMENTS, EVENTS, PODS, Binding, DeleteOptions, Document, Key, Query, bind
from tests.cluster_e2e import test_chart as chart
from tests.cluster_e2e.conftest import Pods
from tests.cluster_e2e.node import Node
from tests.cluster_e2e.objects import BATCH, BATCH_RESOURCES, QOS_CLASS, install
from tests.cluster_e2e.test_enforcement import uid_of
from tests.cluster_e2e.test_koordlet import BUSY, settings_below
from tests.deploy.charts import ROOT, documents
from tests.waiting import wait_for

pytestmark = pytest.mark.cluster

VICTIM = {"requests": {"cpu": "1500m"}}


@pytest.fixture
def image(node: Node) -> str:
    """The image, known to the node's runtime."""
    archive = os.environ.get("KOORD_IMAGE", "")
    if not archive:
        pytest.skip("KOORD_IMAGE is not set: make it with `make image`, dist/koord-*.oci.tar")
    done = node.runtime.ctr("images", "import", archive)
    assert done.returncode == 0, done.stderr
    (name,) = re.findall(r"docker\.io/koord/koord:\S+", node.runtime.ctr("images", "list").stdout)[:1]
    return name.removeprefix("docker.io/")


def at_this_node(workload: Document, node: Node, image: str) -> Document:
    """A workload of the chart with what this node lacks: a service network, and /var of its own."""
    spec = workload["spec"]["template"]["spec"]
    server = urlsplit(node.url)
    for each in [*spec["containers"], *spec.get("initContainers", ())]:
        assert each["image"] == image, "the chart names the image that was built"
        each["imagePullPolicy"] = "Never"
        each["env"] = [
            *each.get("env", ()),
            {"name": "KUBERNETES_SERVICE_HOST", "value": str(server.hostname)},
            {"name": "KUBERNETES_SERVICE_PORT", "value": str(server.port)},
        ]
    for volume in spec["volumes"]:
        if volume["name"] in ("run", "state", "log"):
            volume["hostPath"]["path"] = str(node.directory / f"koord-{volume['name']}")
    return workload


@contextmanager
def manager(node: Node, image: str) -> Iterator[Document]:
    """The manager of the chart; yields its pod when it is Ready."""
    values = {"manager": {"enabled": True, "replicas": 1}}
    wanted = [each for each in documents(values) if each["metadata"]["name"].startswith("koord-manager")]
    made = []
    kinds = {**chart.KINDS, "Deployment": DEPLOYMENTS}
    try:
        for document in wanted:
            if document["kind"] == "Deployment":
                document = at_this_node(document, node, image)
            kind = kinds[document["kind"]]
            node.client.create(kind, document)
            made.append((kind, Key(chart.NAMESPACE if kind.namespaced else "", document["metadata"]["name"])))

        def pod() -> Document | None:
            found = [each for each in chart.agents(node) if each["metadata"]["name"].startswith("koord-manager-")]
            return found[0] if found else None

        waiting = wait_for(pod, interval_seconds=0.2)
        key = Key(chart.NAMESPACE, waiting["metadata"]["name"])
        bind(node.client, Binding(key, waiting["metadata"]["uid"], node.name))
        wait_for(
            lambda: chart.is_ready(node.client.get(PODS, key)),
            60,
            check=lambda: chart.story(node),
            interval_seconds=0.5,
        )
        yield node.client.get(PODS, key)
    finally:
        for kind, key in reversed(made):
            node.client.delete(kind, key, DeleteOptions(propagation_policy="Foreground"))


def kubectl_koord(node: Node, *arguments: str) -> str:
    command = [sys.executable, "-m", "kubectl_koord", f"--kubeconfig={node.kubeconfig}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_the_chart_runs_from_the_image_and_everyone_is_told(
    node: Node, pods: Pods, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chart, "with_programs_of_the_host", lambda each, at: at_this_node(each, at, image))
    begun = time.monotonic()
    values = chart.values_of(node, enforce=True)
    values["koordlet"]["settings"] += "[page]\nremote = true\n"
    values["koordlet"]["settings"] = values["koordlet"]["settings"].replace(
        "[enforcer]\n", '[enforcer]\nstrategies = ["*"]\n'
    )
    pods.run("web", BUSY, VICTIM, metadata={"labels": {QOS_CLASS: "LS"}})
    pods.run("batch", BUSY, BATCH_RESOURCES, metadata=BATCH)
    before = settings_below(Path("/sys/fs/cgroup"))
    with chart.installed(node, values) as agent:
        print(f"agent ready after {time.monotonic() - begun:.1f} s")
        install(node.client, node.name)
        active = re.compile(r"^koord_settings_active\{[^}]*\} [1-9]", re.MULTILINE)
        wait_for(lambda: active.search(chart.scrape(agent)), 90, interval_seconds=0.5, check=lambda: chart.log_of(node))
        print(f"settings in effect after {time.monotonic() - begun:.1f} s")

        def told() -> list[str]:
            listed = node.client.list(EVENTS, Query(pods.namespace)).items
            return [note for item in listed if " lost " in (note := item.value.get("note", ""))]

        for number in range(2):
            pods.run(f"hog-{number}", BUSY, metadata={"labels": {QOS_CLASS: "BE"}})
        print(f"Event: {wait_for(told, 60, interval_seconds=0.5, check=lambda: chart.story(node))[0]}")
        assert re.search(r"^koord_verdicts_total\{", chart.scrape(agent), re.MULTILINE)
        assert pods.namespace in chart.scrape(agent, "/")
        assert node.name in kubectl_koord(node, "nodes")
        with manager(node, image) as own:
            assert own["spec"]["securityContext"]["runAsUser"] == 65532
            print(f"manager ready after {time.monotonic() - begun:.1f} s")
        assert "Traceback" not in chart.log_of(node)
    after = settings_below(Path("/sys/fs/cgroup"))
    changed = {path for path in before.keys() & after.keys() if "/pod" in path and before[path] != after[path]}
    state = node.directory / "koord-state"
    print(f"{len(changed)} settings of pods are left, for the next agent: {sorted(state.iterdir())}")
    assert not {path for path in changed if f"pod{uid_of(pods, 'web')}" in path}, "the service was never written"
