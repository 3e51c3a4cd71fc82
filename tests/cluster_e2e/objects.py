"""Objects of the tests: kinds that the agent needs, the node's NodeSLO, and pods as Koordinator's protocol has them."""

import json
from typing import Any

from api.crds import NODE_METRIC, NODE_SLO, definition_document
from api.protocol import ANNOTATION_EXTENDED_RESOURCE_SPEC, BATCH_CPU, BATCH_MEMORY
from cluster import CUSTOM_RESOURCE_DEFINITIONS, Client, Document, Key, Unavailable, custom
from cluster.errors import NotFound
from tests.waiting import wait_for

QOS_CLASS = "koordinator.sh/qosClass"
SLO: Document = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressMinPercent": 20,
        "cpuSuppressPolicy": "cfsQuota",
    },
    "extensions": {"oomScore": {"enable": True}},
}
"""An action on the best-effort directory as long as the agent runs, and protocol state of every pod."""
BATCH_AMOUNTS = {BATCH_CPU: "500", BATCH_MEMORY: "64Mi"}
BATCH_RESOURCES: Document = {"requests": BATCH_AMOUNTS, "limits": BATCH_AMOUNTS}
"""Resources of a container of half a batch CPU."""
BATCH: Document = {
    "labels": {QOS_CLASS: "BE"},
    "annotations": {ANNOTATION_EXTENDED_RESOURCE_SPEC: json.dumps({"containers": {"main": BATCH_RESOURCES}})},
}
"""Metadata of its pod, as koord-manager's webhook leaves it."""


def install(client: Client, node: str, spec: Document = SLO) -> None:
    """Install the kinds, and the node's NodeSLO with this spec."""
    for definition in (NODE_METRIC, NODE_SLO):
        document = definition_document(definition)
        if client.find(CUSTOM_RESOURCE_DEFINITIONS, Key("", document["metadata"]["name"])) is None:
            client.create(CUSTOM_RESOURCE_DEFINITIONS, document)
    slo = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": node}, "spec": spec}
    kind, key = custom(NODE_SLO).of(dict), Key("", node)

    def made() -> bool:
        try:
            if client.find(kind, key) is not None:
                client.delete(kind, key)
            client.create(kind, slo)
        except (NotFound, Unavailable):  # the kind is not served yet
            return False
        return True

    wait_for(made, interval_seconds=0.2)


def update_time(client: Client, node: str) -> str:
    """Return when the node's NodeMetric was written last; empty where there is none."""
    found: dict[str, Any] = client.find(custom(NODE_METRIC).of(dict), Key("", node)) or {}
    return str(found.get("status", {}).get("updateTime") or "")
