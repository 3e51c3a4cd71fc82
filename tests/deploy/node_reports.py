"""Trial of deploy/policies/node-reports.yaml at a real API server, by tokens of two nodes' agents."""

from pathlib import Path

import msgspec
import yaml

from api.crds import NODE_METRIC, definition_document
from cluster import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    NODES,
    PODS,
    AlreadyExists,
    Client,
    Document,
    Forbidden,
    Key,
    Patch,
    PatchType,
    Resource,
    connect,
    custom,
)
from cluster.transport import Request
from tests.waiting import wait_for

POLICY = Path(__file__).parents[2] / "deploy/policies/node-reports.yaml"
NAMESPACE = "koord-policy-test"
GROUP = "admissionregistration.k8s.io"
KINDS = {
    "ValidatingAdmissionPolicy": Resource(
        "ValidatingAdmissionPolicy", "validatingadmissionpolicies", dict, group=GROUP, namespaced=False
    ),
    "ValidatingAdmissionPolicyBinding": Resource(
        "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", dict, group=GROUP, namespaced=False
    ),
}
ACCOUNTS = Resource("ServiceAccount", "serviceaccounts", dict)
BINDINGS = Resource(
    "ClusterRoleBinding", "clusterrolebindings", dict, group="rbac.authorization.k8s.io", namespaced=False
)
METRICS = custom(NODE_METRIC)
STATUS = Patch(PatchType.JSON, [{"op": "add", "path": "/status", "value": {"updateTime": "2024-01-01T00:00:00Z"}}])


def create(client: Client, resource: Resource[Document], document: Document) -> None:
    try:
        client.create(resource, document)
    except AlreadyExists:
        return


def prepare(client: Client) -> None:
    """Install kind, policy and the agents' account, with more rights than the chart gives it."""
    create(client, CUSTOM_RESOURCE_DEFINITIONS, definition_document(NODE_METRIC))
    for document in yaml.safe_load_all(POLICY.read_text().replace("koord-system", NAMESPACE)):
        create(client, KINDS[document["kind"]], document)
    create(client, NAMESPACES, {"metadata": {"name": NAMESPACE}})
    for name in ("koordlet", "somebody"):
        create(client, ACCOUNTS, {"metadata": {"name": name, "namespace": NAMESPACE}})
        subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        create(client, BINDINGS, {"metadata": {"name": f"policy-{name}"}, "roleRef": role, "subjects": [subject]})
    for node in ("node-a", "node-b"):
        create(client, NODES, {"metadata": {"name": node}})
        spec = {"nodeName": node, "serviceAccountName": "koordlet", "containers": [{"name": "c", "image": "none"}]}
        create(client, PODS, {"metadata": {"name": f"agent-{node}", "namespace": NAMESPACE}, "spec": spec})


def token(client: Client, account: str = "koordlet", pod: str = "") -> str:
    """Return a token of an account, bound to a pod where one is named."""
    spec: Document = {"audiences": [], "expirationSeconds": 600}
    if pod:
        uid = client.get(PODS, Key(NAMESPACE, pod))["metadata"]["uid"]
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    answer = client.send(Request("POST", path, body=msgspec.json.encode(body)))
    found: str = msgspec.json.decode(answer)["status"]["token"]
    return found


def kubeconfig_with(admin: Path, bearer: str, path: Path) -> Path:
    """Write a kubeconfig for the same server that identifies by a token alone."""
    document = yaml.safe_load(admin.read_text())
    name = document["contexts"][0]["context"]["user"]
    document["users"] = [{"name": name, "user": {"token": bearer}}]
    path.write_text(yaml.safe_dump(document))
    return path


def write(client: Client, node: str) -> str:
    """Write a node's report as its agent does; return the refusal, empty where it was taken."""
    try:
        client.patch(METRICS, Key("", node), STATUS, subresource="status")
    except Forbidden as error:
        return str(error)
    return ""


def check_policy(admin: Client, kubeconfig: Path, folder: Path) -> None:
    """Hold the policy to what it promises, at the server of `kubeconfig`. Raises AssertionError."""
    prepare(admin)
    for node in ("node-a", "node-b"):
        create(admin, METRICS.of(dict), {"metadata": {"name": node}, "spec": {}})
    of_a = token(admin, pod="agent-node-a")
    clients = {
        "node-a": connect(kubeconfig=kubeconfig_with(kubeconfig, of_a, folder / "a")),
        "unbound": connect(kubeconfig=kubeconfig_with(kubeconfig, token(admin), folder / "unbound")),
        "somebody": connect(kubeconfig=kubeconfig_with(kubeconfig, token(admin, "somebody"), folder / "somebody")),
    }
    try:
        # A policy takes effect some moments after it was made.
        refusal = wait_for(lambda: write(clients["node-a"], "node-b"))
        assert 'the agent of node "node-a" may not write the NodeMetric of node "node-b"' in refusal
        assert write(clients["node-a"], "node-a") == ""
        assert "may not write" in write(clients["unbound"], "node-a"), "a token that is bound to no node"
        assert write(clients["somebody"], "node-b") == "", "other writers are the business of their roles"
        for wanted, refused in (("node-b", True), ("node-a", False)):
            admin.delete(METRICS, Key("", wanted))
            try:
                clients["node-a"].create(METRICS, {"metadata": {"name": wanted}, "spec": {}})
            except Forbidden:
                assert refused
            else:
                assert not refused
    finally:
        for client in clients.values():
            client.close()
