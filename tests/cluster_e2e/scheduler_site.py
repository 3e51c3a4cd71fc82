"""An API server with RBAC, the chart's kinds and its account of koord-scheduler, and objects for it to place.

There is no kubelet and no controller-manager: what these would do, a test does as the administrator.
"""

import contextlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cluster import (
    CUSTOM_RESOURCE_DEFINITIONS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    Client,
    DeleteOptions,
    Document,
    Key,
    NotFound,
    Resource,
    connect,
    merge_patch,
)
from cluster.transport import Request
from tests.cluster import apiserver
from tests.cluster_e2e.test_chart import KINDS
from tests.cluster_e2e.test_webhooks import FAST, token
from tests.deploy.charts import ROOT, documents
from tests.deploy.node_reports import kubeconfig_with
from tests.waiting import LOG_CHARS, wait_for

ACCOUNT = "koord-scheduler"
RELEASE = "koord-system"
"""The release's namespace."""
SPACE = "placing"
"""Namespace of the pods."""
LEASE = Key(RELEASE, ACCOUNT)
VALUES: dict[str, Any] = {"scheduler": {"enabled": True, "explanations": True, "devicePluginAdaption": True}}
"""Everything of the scheduler that the chart can switch on."""
POOL = "pool"
"""Label of nodes that a test has for itself."""
AUDIT = "audit.log"
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [f"system:serviceaccount:{RELEASE}:{ACCOUNT}"]}, {"level": "None"}],
}


@dataclass
class Scheduler:
    """A running `koord-scheduler` and its log."""

    process: subprocess.Popen[bytes]
    log: Path

    def says(self, text: str) -> bool:
        """Return whether its log has a text."""
        return text in self.log.read_text(errors="replace")

    def end_of_log(self) -> str:
        """Return the last lines."""
        return self.log.read_text(errors="replace")[-LOG_CHARS:]


@dataclass
class Site:
    """The server, its administrator, and the objects that a test has made."""

    client: Client
    kubeconfig: Path
    """Of the chart's account."""
    folder: Path
    settings: Document
    """Of the chart's scheduler.toml."""
    made: list[tuple[Resource[Any], Key]] = field(default_factory=list)
    missing: Any = None
    """What the account was last not allowed."""

    def create(self, resource: Resource[Any], document: Document) -> Key:
        """Create an object that `clear` deletes."""
        meta = document["metadata"]
        key = Key(meta.get("namespace", "") if resource.namespaced else "", meta["name"])
        self.client.create(resource, document)
        self.made.append((resource, key))
        return key

    def clear(self) -> None:
        """Delete what was made, last first."""
        while self.made:
            resource, key = self.made.pop()
            with contextlib.suppress(NotFound):
                self.client.patch(resource, key, merge_patch({"metadata": {"finalizers": None}}))
                self.client.delete(resource, key, DeleteOptions(grace_period_seconds=0))

    def node(self, name: str, offered: Mapping[str, str] | None = None, **metadata: Any) -> None:
        """Create a node of a pool of its name, that offers 4 cores unless `offered` says otherwise."""
        labels = {"kubernetes.io/hostname": name, POOL: name, **metadata.pop("labels", {})}
        self.create(NODES, {"metadata": {"name": name, "labels": labels, **metadata}})
        self.client.patch(NODES, Key("", name), merge_patch({"spec": {"taints": None}}))
        self.offer(name, {"cpu": "4", "memory": "16Gi", "pods": "110", **(offered or {})})

    def offer(self, name: str, amounts: Mapping[str, str]) -> None:
        """State what a node offers."""
        status = {"capacity": dict(amounts), "allocatable": dict(amounts)}
        self.client.patch(NODES, Key("", name), merge_patch({"status": status}), subresource="status")

    def pod(self, name: str, pool: str, requests: Mapping[str, str] | None = None, **fields: Any) -> Key:
        """Create a pod for a pool; fields but `labels`, `annotations` and `container` go into the spec."""
        amounts = {"cpu": "1", **(requests or {})}
        extended = {name: amount for name, amount in amounts.items() if "/" in name}
        container = {
            "name": "main",
            "image": "registry.invalid/app",
            "resources": {"requests": amounts, "limits": extended},
            **fields.pop("container", {}),
        }
        metadata = {
            "name": name,
            "namespace": SPACE,
            "labels": fields.pop("labels", {}),
            "annotations": fields.pop("annotations", {}),
        }
        spec = {"schedulerName": ACCOUNT, "nodeSelector": {POOL: pool}, "containers": [container], **fields}
        return self.create(PODS, {"metadata": metadata, "spec": spec})

    def get(self, resource: Resource[Any], key: Key) -> Document:
        """Return an object as it is stored."""
        found: Document = self.client.get(resource, key)
        return found

    def node_of(self, key: Key) -> str:
        """Return the node of a pod; empty before it has one."""
        return str(self.get(PODS, key)["spec"].get("nodeName", ""))

    def why(self, key: Key) -> str:
        """Return the messages of a pod's conditions."""
        conditions = self.get(PODS, key).get("status", {}).get("conditions", [])
        return " ".join(each.get("message", "") for each in conditions)

    def await_node(self, key: Key, running: Scheduler, seconds: float = 60.0) -> str:
        """Wait until a pod has a node, and return it."""
        return wait_for(
            lambda: self.node_of(key), seconds, check=lambda: f"{self.why(key)}\n{running.end_of_log()}", **_SLOWLY
        )

    def allows(self, group: str, resource: str, verb: str, namespace: str = "", name: str = "") -> bool:
        """Return whether the server lets the account do something."""
        plural, _, subresource = resource.partition("/")
        asked = {"verb": verb, "group": group, "resource": plural, "subresource": subresource}
        spec = {
            "user": f"system:serviceaccount:{RELEASE}:{ACCOUNT}",
            "groups": ["system:authenticated", "system:serviceaccounts"],
            "resourceAttributes": {**asked, "namespace": namespace, "name": name},
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = self.client.send(Request("POST", path, body=msgspec.json.encode(body)))
        return bool(msgspec.json.decode(answer)["status"]["allowed"])

    @contextlib.contextmanager
    def running(self, name: str, *options: str, **plugins: Document) -> Iterator[Scheduler]:
        """Run the program under the chart's account and settings; `plugins` are further keys of the plugins' tables."""
        tables = dict(self.settings["plugins"])
        for plugin, keys in plugins.items():
            tables[plugin] = {**tables.get(plugin, {}), **keys}
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump({**self.settings, "plugins": tables}))
        with contextlib.suppress(NotFound):
            self.client.delete(LEASES, LEASE)
        command = [sys.executable, "-m", "scheduler", "--config", str(file), "--kubeconfig", str(self.kubeconfig)]
        command += ["run", "--port", "0", "--lease", f"{RELEASE}/{ACCOUNT}", *options]
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, cwd=ROOT, env=_QUIET)
        try:
            yield Scheduler(process, log)
        finally:
            process.kill()
            process.wait(20)

    def audited(self) -> list[Document]:
        """Return what the account has asked of the server."""
        whole, _, _ = (self.folder / AUDIT).read_bytes().rpartition(b"\n")
        return [msgspec.json.decode(line) for line in whole.splitlines()]


_QUIET = {**os.environ, "PYTHONWARNINGS": "ignore"}
"""Not a warning for each request that the server's certificate is not verified."""
_SLOWLY: dict[str, Any] = {"interval_seconds": 0.1}


@contextlib.contextmanager
def scheduler_site(assets: Path, folder: Path) -> Iterator[Site]:
    """Start a server, install the chart's kinds, account and rights, and note what the account asks."""
    policy = folder / "audit-policy.yaml"
    policy.write_text(yaml.safe_dump(_POLICY))
    further = [
        f"--audit-policy-file={policy}",
        f"--audit-log-path={folder / AUDIT}",
        "--feature-gates=GenericWorkload=true",
        "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    ]
    with (
        apiserver.running(assets, folder, further) as admin,
        contextlib.closing(connect(FAST, kubeconfig=admin)) as client,
    ):
        for path in sorted((ROOT / "deploy/chart/crds").glob("*.yaml")):
            client.create(CUSTOM_RESOURCE_DEFINITIONS, yaml.safe_load(path.read_text()))
        for name in (RELEASE, SPACE):
            client.create(NAMESPACES, {"metadata": {"name": name, "labels": _ADMIN_ACCESS}})
        client.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
        installed = [each for each in documents(VALUES) if each["metadata"]["name"] == ACCOUNT]
        for each in installed:
            if each["kind"] in KINDS:
                client.create(KINDS[each["kind"]], each)
        (settings,) = (each["data"]["scheduler.toml"] for each in installed if each["kind"] == "ConfigMap")
        account = kubeconfig_with(admin, token(client, ACCOUNT, RELEASE), folder / "account")
        yield Site(client, account, folder, tomllib.loads(settings))


_ADMIN_ACCESS = {"resource.kubernetes.io/admin-access": "true"}
