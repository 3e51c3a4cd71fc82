"""Policies and webhooks at a real API server: the chart's objects, the table of cases, the published walk of Spark."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.crds import CLUSTER_COLOCATION_PROFILE, DEFINITIONS, ELASTIC_QUOTA, definition_document
from cluster import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    ApiError,
    Client,
    ClientSettings,
    Document,
    Key,
    Resource,
    connect,
    custom,
    merge_patch,
)
from controllers.webhooks.serve import Webhooks
from controllers.webhooks.settings import WebhookSettings
from tests.cluster import apiserver
from tests.controllers.webhooks import spark
from tests.deploy import admission_cases
from tests.deploy.admission_cases import PodCase, QuotaCase
from tests.deploy.charts import documents
from tests.deploy.node_reports import kubeconfig_with
from tests.waiting import wait_for

pytestmark = pytest.mark.cluster

FAST = ClientSettings(requests_per_second=1000.0, burst=1000, attempts=3)
ACCOUNTS = Resource("ServiceAccount", "serviceaccounts", dict)
RBAC = "rbac.authorization.k8s.io"
ROLES = Resource("ClusterRole", "clusterroles", dict, group=RBAC, namespaced=False)
ROLE_BINDINGS = Resource("ClusterRoleBinding", "clusterrolebindings", dict, group=RBAC, namespaced=False)
OF_THE_MANAGER = {
    "ClusterRole": ROLES,
    "ClusterRoleBinding": ROLE_BINDINGS,
    "Role": Resource("Role", "roles", dict, group=RBAC),
    "RoleBinding": Resource("RoleBinding", "rolebindings", dict, group=RBAC),
}
RUNTIME_CLASSES = Resource("RuntimeClass", "runtimeclasses", dict, group="node.k8s.io", namespaced=False)
QUOTAS = custom(ELASTIC_QUOTA).of(dict)
EVERYTHING = [{"apiGroups": [""], "resources": ["pods", "pods/status", "configmaps"], "verbs": ["*"]}]
ADMISSION = {
    kind: Resource(kind, plural, dict, group="admissionregistration.k8s.io", namespaced=False)
    for kind, plural in (
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    )
}
VALUES: dict[str, Any] = {
    "policies": {"nodeReports": False, "podAllocations": True, "podClasses": True, "elasticQuotas": True},
    "webhooks": {"enabled": True, "reservations": True, "nodeStatus": True},
}
POLICED, SERVED = "policed", "served"
"""Namespaces of the tests without webhooks and of those with them."""


@dataclass(frozen=True)
class Site:
    """An API server with an administrator, a tenant who may write pods, and a scheduler who may bind them too."""

    admin: Client
    tenant: Client
    scheduler: Client
    manager: Client
    """The account of koord-manager with the rights that the chart gives its webhooks, and no others."""

    def of(self, scheduler: bool) -> Client:
        """Return the client of a case."""
        return self.scheduler if scheduler else self.tenant


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("admission")
    with (
        apiserver.running(Path(os.environ["KUBEBUILDER_ASSETS"]), folder) as kubeconfig,
        contextlib.ExitStack() as stack,
    ):
        admin = stack.enter_context(contextlib.closing(connect(FAST, kubeconfig=kubeconfig)))
        prepare(admin)
        clients = {}
        for name, namespace in (("tenant", POLICED), ("scheduler", POLICED), ("koord-manager", "koord-system")):
            file = kubeconfig_with(kubeconfig, token(admin, name, namespace), folder / name)
            clients[name] = stack.enter_context(contextlib.closing(connect(FAST, kubeconfig=file)))
        yield Site(admin, clients["tenant"], clients["scheduler"], clients["koord-manager"])


def prepare(admin: Client) -> None:
    """Install kinds, classes, namespaces, accounts, and the chart's policies."""
    for definition in DEFINITIONS:
        admin.create(CUSTOM_RESOURCE_DEFINITIONS, definition_document(definition))
    for name, value in admission_cases.BANDS.items():
        admin.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    for name in (POLICED, SERVED, "koord-system"):
        admin.create(NAMESPACES, {"metadata": {"name": name}})
    binder = [*EVERYTHING, {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}]
    quotas = {"apiGroups": ["scheduling.sigs.k8s.io"], "resources": ["elasticquotas"], "verbs": ["*"]}
    for name, rules in (("tenant", [*EVERYTHING, quotas]), ("scheduler", binder)):
        admin.create(ACCOUNTS, {"metadata": {"name": name, "namespace": POLICED}})
        admin.create(ROLES, {"metadata": {"name": name}, "rules": rules})
        subject = {"kind": "ServiceAccount", "name": name, "namespace": POLICED}
        role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
        admin.create(ROLE_BINDINGS, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
    admin.create(ACCOUNTS, {"metadata": {"name": "koord-manager", "namespace": "koord-system"}})
    for document in documents(VALUES):
        if document["kind"].startswith("ValidatingAdmission"):
            admin.create(ADMISSION[document["kind"]], document)
        elif document["metadata"]["name"] == "koord-webhook" and document["kind"] in OF_THE_MANAGER:
            admin.create(OF_THE_MANAGER[document["kind"]], document)


def token(admin: Client, account: str, namespace: str) -> str:
    from cluster.transport import Request

    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    answer = admin.send(Request("POST", path, body=msgspec.json.encode(body)))
    return str(msgspec.json.decode(answer)["status"]["token"])


def refusal(write: Any) -> str:
    """Return why a write was refused; empty where it was not."""
    try:
        write()
    except ApiError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def policed(site: Site) -> Site:
    """The server once its policies are in effect."""
    stand_in = next(case for case in admission_cases.PODS if case.name == "stand-in")
    probe = {**stand_in.pod, "metadata": stand_in.pod["metadata"] | {"name": "probe"}}
    wait_for(lambda: "no pod may have it" in refusal(lambda: site.admin.create(PODS, probe, namespace=POLICED)))
    wrong = QuotaCase("probe", {"cpu": 11}).quota
    wait_for(lambda: "above" in refusal(lambda: site.admin.create(QUOTAS, wrong, namespace=POLICED)))
    classed = next(case for case in admission_cases.PODS if case.name == "be-none")
    probe = {**classed.pod, "metadata": classed.pod["metadata"] | {"name": "probe-2"}}
    wait_for(lambda: "together" in refusal(lambda: site.admin.create(PODS, probe, namespace=POLICED)))
    return site


def check_pod(site: Site, case: PodCase, namespace: str) -> None:
    if case.granted:
        namespace = f"{namespace}-{case.name}"
        labels = {admission_cases.GRANT: case.granted}
        site.admin.create(NAMESPACES, {"metadata": {"name": namespace, "labels": labels}})
    client = site.of(case.scheduler)
    if not case.updates:
        found = refusal(lambda: client.create(PODS, case.pod, namespace=namespace))
    else:
        stored = site.tenant.create(PODS, case.pod, namespace=namespace)
        found = refusal(lambda: client.update(PODS, case.updated(stored)))
        by_status = refusal(
            lambda: client.update(
                PODS, case.updated(site.admin.get(PODS, Key(namespace, case.name))), subresource="status"
            )
        )
        assert bool(by_status) == bool(case.refusal), f"by the status: {by_status}"
    assert bool(found) == bool(case.refusal), found
    assert case.refusal in found


@pytest.mark.parametrize("case", admission_cases.PODS, ids=lambda case: case.name)
def test_policies_on_pods(policed: Site, case: PodCase) -> None:
    check_pod(policed, case, POLICED)


@pytest.mark.parametrize("case", admission_cases.QUOTAS, ids=lambda case: case.name)
def test_policies_on_quotas(policed: Site, case: QuotaCase) -> None:
    check_quota(policed, case, POLICED)


def check_quota(site: Site, case: QuotaCase, namespace: str) -> None:
    client = site.admin if case.deleted else site.tenant
    if case.later is None and not case.deleted:
        found = refusal(lambda: client.create(QUOTAS, case.quota, namespace=namespace))
    else:
        stored = client.create(QUOTAS, case.quota, namespace=namespace)
        key = Key(namespace, case.name)
        if case.deleted:
            found = refusal(lambda: client.delete(QUOTAS, key))
        else:
            assert case.later is not None
            later = case.later.quota
            changed = {
                **stored,
                "spec": later["spec"],
                "metadata": stored["metadata"]
                | {"labels": stored["metadata"].get("labels", {}) | later["metadata"]["labels"]},
            }
            found = refusal(lambda: client.update(QUOTAS, changed))
    assert bool(found) == bool(case.refusal), found
    assert case.refusal in found


@pytest.fixture(scope="module")
def webhooks(site: Site) -> Iterator[Webhooks]:
    """The server with the chart's webhook configurations, which call a server in this process."""
    settings = WebhookSettings(address="127.0.0.1", port=0, names=("localhost",))
    webhooks = Webhooks(site.manager, settings)
    for document in documents(VALUES):
        if document["kind"].endswith("WebhookConfiguration"):
            for item in document["webhooks"]:
                path = item["clientConfig"].pop("service")["path"]
                item["clientConfig"]["url"] = f"https://localhost:{webhooks.port}{path}"
                item.setdefault("namespaceSelector", {})
                if item["name"].startswith(("mpod", "vpod")):
                    item["namespaceSelector"]["matchExpressions"].append(
                        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [POLICED]}
                    )
            site.admin.create(ADMISSION[document["kind"]], document)
    webhooks.start()
    try:
        wait_for(lambda: webhooks.ready, 30)
        yield webhooks
    finally:
        webhooks.stop()


@pytest.fixture(scope="module")
def served(site: Site, webhooks: Webhooks) -> Site:
    """The server once the webhooks are in effect, with the profile of the published walk."""
    site.admin.create(custom(CLUSTER_COLOCATION_PROFILE), spark.PROFILE)
    site.admin.create(NAMESPACES, spark.NAMESPACE)
    number = iter(range(1000))

    def changed() -> bool:
        probe = spark.spark_pod("driver", "1", "1Gi")
        probe["metadata"]["name"] = f"probe-{next(number)}"
        stored = site.admin.create(PODS, submitted(probe))
        return bool(stored["spec"]["schedulerName"] == "koord-scheduler")

    wait_for(changed, 30, interval_seconds=0.2)
    return site


def submitted(pod: Document) -> Document:
    """Return a pod as its client sends it, before the API server has set its priority."""
    spec = {
        name: value
        for name, value in pod["spec"].items()
        if name not in ("priority", "preemptionPolicy", "serviceAccountName")
    }
    return {**pod, "spec": spec}


@pytest.mark.parametrize(
    ("role", "memory"),
    [pytest.param("driver", "3456Mi", id="driver"), pytest.param("executor", "1408Mi", id="executor")],
)
def test_the_published_walk_of_spark(served: Site, role: str, memory: str) -> None:
    stored = served.tenant.create(PODS, submitted(spark.spark_pod(role, "1", memory)))
    labels, spec = stored["metadata"]["labels"], stored["spec"]
    assert labels["koordinator.sh/qosClass"] == "BE"
    assert labels["koordinator.sh/priority"] == "1000"
    assert labels["koordinator.sh/mutated"] == "true"
    assert stored["metadata"]["annotations"]["koordinator.sh/intercepted"] == "true"
    assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == (
        "koord-batch",
        5000,
        "PreemptLowerPriority",
    )
    assert spec["schedulerName"] == "koord-scheduler"
    assert spec["terminationGracePeriodSeconds"] == 30
    amounts = {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": memory}
    assert spec["containers"][0]["resources"] == {"limits": amounts, "requests": amounts}
    assert stored["status"]["qosClass"] == "BestEffort"


@pytest.mark.parametrize("case", admission_cases.PODS, ids=lambda case: case.name)
def test_webhooks_and_policies_on_pods(served: Site, case: PodCase) -> None:
    check_pod(served, case, SERVED)


def test_a_dry_run_is_answered_and_leaves_nothing(served: Site) -> None:
    from cluster.transport import Request

    body = submitted(spark.spark_pod("driver", "1", "1Gi"))
    body["metadata"]["name"] = "dry"
    path = "/api/v1/namespaces/spark-job/pods"
    answer = served.tenant.send(Request("POST", path, {"dryRun": "All"}, msgspec.json.encode(body)))
    assert msgspec.json.decode(answer)["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"
    assert served.admin.find(PODS, Key("spark-job", "dry")) is None


def child_quota(cpu: int) -> Document:
    return QuotaCase(f"child-{cpu}", {"cpu": cpu}, {"cpu": 40}, {"parent": "team"}).quota


def test_the_tree_of_quotas(served: Site) -> None:
    parent = QuotaCase("team", {"cpu": 40}, {"cpu": 40}, {"is-parent": "true"}).quota
    stored = served.tenant.create(QUOTAS, parent, namespace=SERVED)
    assert stored["metadata"]["labels"]["quota.scheduling.koordinator.sh/parent"] == "koordinator-root-quota"
    assert stored["metadata"]["annotations"]["quota.scheduling.koordinator.sh/shared-weight"] == '{"cpu":40}'
    # What this process knows of the tree follows the API server by a moment.
    wait_for(lambda: not refusal(lambda: served.tenant.create(QUOTAS, child_quota(10), namespace=SERVED)))
    wait_for(lambda: "sums to 41" in refusal(lambda: served.tenant.create(QUOTAS, child_quota(31), namespace=SERVED)))
    assert not refusal(lambda: served.tenant.create(QUOTAS, child_quota(30), namespace=SERVED))
    in_parent = {
        "metadata": {"name": "p", "labels": {"quota.scheduling.koordinator.sh/name": "team"}},
        "spec": {"containers": [{"name": "c", "image": "none"}]},
    }
    assert "is a parent" in refusal(lambda: served.tenant.create(PODS, in_parent, namespace=SERVED))
    assert "has children" in refusal(lambda: served.tenant.delete(QUOTAS, Key(SERVED, "team")))


def test_settings_of_the_manager(served: Site) -> None:
    document = {
        "metadata": {"name": "slo-controller-config"},
        "data": {"colocation-config": '{"degradeTimeMinutes":0}'},
    }
    assert "degradeTimeMinutes must be at least 1" in refusal(
        lambda: served.tenant.create(CONFIG_MAPS, document, namespace=SERVED)
    )
    document["data"] = {"colocation-config": '{"enable":true}'}
    served.tenant.create(CONFIG_MAPS, document, namespace=SERVED)


def test_a_kubelets_status_is_amplified(served: Site) -> None:
    node = {
        "metadata": {"name": "n", "annotations": {"node.koordinator.sh/resource-amplification-ratio": '{"cpu":1.5}'}}
    }
    served.admin.create(NODES, node)
    report = merge_patch({"status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4", "memory": "8Gi"}}})
    for _ in range(2):
        stored = served.admin.patch(NODES, Key("", "n"), report, subresource="status")
        assert stored["status"]["allocatable"] == {"cpu": "6", "memory": "8Gi"}
        assert stored["status"]["capacity"]["cpu"] == "4"
    raw = stored["metadata"]["annotations"]["node.koordinator.sh/raw-allocatable"]
    assert msgspec.json.decode(raw) == {"cpu": "4", "memory": "8Gi"}


def test_a_pod_with_the_overhead_of_its_runtime_class(served: Site) -> None:
    overhead = {"podFixed": {"cpu": "250m", "memory": "64Mi"}}
    served.admin.create(RUNTIME_CLASSES, {"metadata": {"name": "sandbox"}, "handler": "sandbox", "overhead": overhead})
    pod = submitted(spark.spark_pod("driver", "1", "1Gi"))
    pod["metadata"]["name"] = "sandboxed"
    pod["spec"]["runtimeClassName"] = "sandbox"
    # The API server learns of the class from its own watch.
    wait_for(
        lambda: (
            "RuntimeClass"
            not in refusal(
                lambda: served.admin.create(PODS, {**pod, "metadata": {"name": "probe"}}, namespace="koord-system")
            )
        )
    )
    assert not refusal(lambda: served.tenant.create(PODS, pod))
    assert served.admin.get(PODS, Key("spark-job", "sandboxed"))["spec"]["overhead"]


def test_a_webhook_that_is_away_weakens_nothing(served: Site, webhooks: Webhooks) -> None:
    webhooks.stop()
    plain = submitted(spark.spark_pod("driver", "1", "1Gi"))
    plain["metadata"]["name"] = "unmutated"
    stored = served.tenant.create(PODS, plain)
    assert stored["spec"]["schedulerName"] == "default-scheduler", "pods are still created, as submitted"
    for case in admission_cases.PODS:
        if case.refusal and not case.updates and not case.granted:
            document = {**case.pod, "metadata": case.pod["metadata"] | {"name": f"away-{case.name}"}}
            client = served.of(case.scheduler)
            assert case.refusal in refusal(lambda c=client, d=document: c.create(PODS, d, namespace=SERVED))
    lone = QuotaCase("lone").quota
    assert "failed calling webhook" in refusal(lambda: served.tenant.create(QUOTAS, lone, namespace=SERVED))
