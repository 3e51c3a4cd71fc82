"""The chart on the node of these tests as Helm would install, upgrade and remove it, with the image's own programs."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import yaml

from cluster import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SERVICES,
    DeleteOptions,
    Document,
    Key,
    Query,
    Resource,
    merge_patch,
)
from cluster.errors import NotFound
from tests.cluster_e2e import test_chart as chart
from tests.cluster_e2e.node import Node
from tests.deploy.charts import ROOT, documents
from tests.waiting import wait_for

REPOSITORY = "docker.io/koord/koord"
KINDS: dict[str, Resource[Any]] = {
    **chart.KINDS,
    "Deployment": DEPLOYMENTS,
    "Job": JOBS,
    "Service": SERVICES,
    "PodDisruptionBudget": POD_DISRUPTION_BUDGETS,
}
WORKLOADS = (DAEMON_SETS, DEPLOYMENTS)


class Release:
    """An installation of the chart in its own namespace."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._made: dict[tuple[str, Key], Resource[Any]] = {}

    def install(self, values: Mapping[str, Any]) -> None:
        """Create the custom resource definitions, the namespace and every object."""
        client = self.node.client
        for path in sorted((ROOT / "deploy" / "crds").glob("*.yaml")):
            definition = yaml.safe_load(path.read_text())
            if client.find(CUSTOM_RESOURCE_DEFINITIONS, Key("", definition["metadata"]["name"])) is None:
                client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        if client.find(NAMESPACES, Key("", chart.NAMESPACE)) is None:
            client.create(NAMESPACES, {"metadata": {"name": chart.NAMESPACE}})
        for document in documents(values):
            self._create(document)

    def upgrade(self, values: Mapping[str, Any]) -> None:
        """Change what differs, and create what is new."""
        for document in documents(values):
            kind, key = self._named(document)
            if (document["kind"], key) in self._made:
                self.node.client.patch(kind, key, merge_patch(self._placed(document)))
            else:
                self._create(document)

    def restore_nodes(self, values: Mapping[str, Any], timeout_seconds: float) -> str:
        """Run the hook of an uninstallation to its end; return what its Job has said."""
        installed = [each["metadata"]["name"] for each in documents(values)]
        hooks = [each for each in documents(values, hooks=True) if each["metadata"]["name"] not in installed]
        for document in hooks:
            self._create(document)
        (job,) = (Key(chart.NAMESPACE, each["metadata"]["name"]) for each in hooks if each["kind"] == "Job")

        def is_done() -> bool:
            status = self.node.client.get(JOBS, job).get("status", {})
            assert not status.get("failed"), chart.story(self.node)
            return bool(status.get("succeeded"))

        wait_for(is_done, timeout_seconds, interval_seconds=0.5, check=lambda: chart.story(self.node))
        logs = self.node.directory.glob(f"pod-logs/{chart.NAMESPACE}_{job.name}-*/*/*.log")
        return "".join(path.read_text() for path in logs)

    def uninstall(self) -> None:
        """Delete every object, and wait for the end of the pods."""
        for (_, key), kind in reversed(self._made.items()):
            try:
                self.node.client.delete(kind, key, DeleteOptions(propagation_policy="Foreground"))
            except NotFound:
                continue
        self._made.clear()
        wait_for(lambda: not self.pods(), 120, interval_seconds=0.2, check=lambda: chart.story(self.node))

    def pods(self, name: str = "") -> list[Document]:
        """Return the pods of one program, or of all."""
        labels = f"app.kubernetes.io/name={name}" if name else ""
        return [item.value for item in self.node.client.list(PODS, Query(chart.NAMESPACE, labels=labels)).items]

    def is_rolled_out(self, name: str) -> bool:
        """Return whether a workload has all its pods, of its newest template and available, and no other."""
        key = Key(chart.NAMESPACE, name)
        daemon_set = self.node.client.find(DAEMON_SETS, key)
        found: Document = daemon_set or self.node.client.get(DEPLOYMENTS, key)
        status, metadata = found.get("status", {}), found["metadata"]
        if status.get("observedGeneration", 0) < metadata["generation"]:
            return False
        if daemon_set is not None:
            names = ("updatedNumberScheduled", "numberReady", "desiredNumberScheduled")
            return [status.get(each, 0) for each in names] == [1, 1, 1] and len(self.pods(name)) == 1
        wanted = found["spec"]["replicas"]
        counts = [status.get(each, 0) for each in ("updatedReplicas", "availableReplicas", "replicas")]
        return counts == [wanted] * 3 and len(self.pods(name)) == wanted

    def await_rollout(self, *names: str, timeout_seconds: float = 120.0) -> None:
        """Wait until these workloads are rolled out."""
        for name in names:
            wait_for(
                lambda name=name: self.is_rolled_out(name),
                timeout_seconds,
                interval_seconds=0.3,
                check=lambda: chart.story(self.node),
            )

    def _create(self, document: Document) -> None:
        kind, key = self._named(document)
        self.node.client.create(kind, self._placed(document))
        self._made[document["kind"], key] = kind

    @staticmethod
    def _named(document: Document) -> tuple[Resource[Any], Key]:
        kind = KINDS[document["kind"]]
        return kind, Key(chart.NAMESPACE if kind.namespaced else "", document["metadata"]["name"])

    def _placed(self, document: Document) -> Document:
        """Return an object with what this node lacks: a service network, a registry, and /var of its own."""
        if document["kind"] not in ("DaemonSet", "Deployment", "Job"):
            return document
        spec = document["spec"]["template"]["spec"]
        server = urlsplit(self.node.url)
        for each in [*spec["containers"], *spec.get("initContainers", ())]:
            assert each["image"].startswith(REPOSITORY.removeprefix("docker.io/")), "every program is the image's"
            each["imagePullPolicy"] = "Never"
            each["env"] = [
                *each.get("env", ()),
                {"name": "KUBERNETES_SERVICE_HOST", "value": str(server.hostname)},
                {"name": "KUBERNETES_SERVICE_PORT", "value": str(server.port)},
            ]
        for volume in spec.get("volumes", ()):
            if volume["name"] in ("run", "state", "log"):
                volume["hostPath"]["path"] = str(self.node.directory / f"koord-{volume['name']}")
        return document
