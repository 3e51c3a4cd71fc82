"""One table of writes for the webhook's rules and for the policies that say the same: both give the same answer."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Document = dict[str, Any]

QOS = "koordinator.sh/qosClass"
CLASS = "koordinator.sh/priority-class"
CPUSET = "scheduling.koordinator.sh/resource-status"
STAND_IN = "scheduling.koordinator.sh/reserve-pod"
GRANT = "admission.koordinator.sh/qos-classes"
BANDS = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}
"""Priority classes of the tests and their values; a pod may only name a class that exists."""


@dataclass(frozen=True)
class PodCase:
    """A pod, or the metadata that a pod is updated to, and what a refusal says; empty where it is admitted."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    band: str = ""
    requests: Mapping[str, str] = field(default_factory=dict)
    init_cpu: str = ""
    granted: str = ""
    updated_labels: Mapping[str, str] | None = None
    updated_annotations: Mapping[str, str] | None = None
    scheduler: bool = False
    refusal: str = ""

    @property
    def updates(self) -> bool:
        """True for a case of an update: the pod is created first, then its metadata changed."""
        return self.updated_labels is not None or self.updated_annotations is not None

    @property
    def pod(self) -> Document:
        """The pod as it is submitted."""
        container: Document = {"name": "main", "image": "none", "resources": {"requests": dict(self.requests)}}
        spec: Document = {"containers": [container]}
        if self.band:
            spec["priorityClassName"] = self.band
        if self.init_cpu:
            init = {"name": "init", "image": "none", "resources": {"requests": {"cpu": self.init_cpu}}}
            spec["initContainers"] = [init]
        metadata = {"name": self.name, "labels": dict(self.labels), "annotations": dict(self.annotations)}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    @property
    def stored(self) -> Document:
        """The pod as the API server shows it to admission: with the value of its priority class."""
        pod = copy.deepcopy(self.pod)
        pod["spec"]["priority"] = BANDS.get(self.band, 0)
        return pod

    def updated(self, pod: Document) -> Document:
        """Return a pod with the metadata that it is updated to."""
        after = copy.deepcopy(pod)
        if self.updated_labels is not None:
            after["metadata"]["labels"] = dict(self.updated_labels)
        if self.updated_annotations is not None:
            after["metadata"]["annotations"] = dict(self.updated_annotations)
        return after


CPU, BATCH = {"cpu": "1"}, {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"}
CPUSET_VALUE = '{"cpuset":"0-3"}'
TOGETHER, WHOLE, CHANGED = "cannot be used together", "whole CPUs", "cannot be changed"

PODS = [
    PodCase("plain"),
    PodCase("be-batch", {QOS: "BE"}, band="koord-batch", requests=BATCH),
    PodCase("be-mid", {QOS: "BE"}, band="koord-mid"),
    PodCase("be-free", {QOS: "BE"}, band="koord-free"),
    PodCase("be-prod", {QOS: "BE"}, band="koord-prod", refusal=TOGETHER),
    PodCase("be-none", {QOS: "BE"}, refusal=TOGETHER),
    PodCase("be-labelled", {QOS: "BE", CLASS: "koord-batch"}, band="koord-prod"),
    PodCase("be-typo", {QOS: "BE", CLASS: "koord-typo"}, band="koord-batch", refusal=TOGETHER),
    PodCase("lsr-prod", {QOS: "LSR"}, band="koord-prod", requests=CPU),
    PodCase("lsr-batch", {QOS: "LSR"}, band="koord-batch", requests=CPU, refusal=TOGETHER),
    PodCase("lsr-none", {QOS: "LSR"}, requests=CPU, refusal=TOGETHER),
    PodCase("lsr-half", {QOS: "LSR"}, band="koord-prod", requests={"cpu": "500m"}, refusal=WHOLE),
    PodCase("lsr-nothing", {QOS: "LSR"}, band="koord-prod", refusal=WHOLE),
    PodCase("lsr-init", {QOS: "LSR"}, band="koord-prod", requests={"cpu": "500m"}, init_cpu="2"),
    PodCase("lse-prod", {QOS: "LSE"}, band="koord-prod", requests={"cpu": "2"}),
    PodCase("lse-none", {QOS: "LSE"}, requests=CPU),
    PodCase("lse-third", {QOS: "LSE"}, requests={"cpu": "1300m"}, refusal=WHOLE),
    PodCase("ls-half", {QOS: "LS"}, band="koord-prod", requests={"cpu": "500m"}),
    PodCase("lower-case", {QOS: "be"}),
    PodCase("batch-of-ls", {QOS: "LS"}, requests=BATCH, refusal=f"need the label {QOS}=BE"),
    PodCase("batch-of-none", requests=BATCH, refusal=f"need the label {QOS}=BE"),
    PodCase("batch-of-nothing", requests={"kubernetes.io/batch-cpu": "0"}),
    PodCase("system", {QOS: "SYSTEM"}, refusal=GRANT),
    PodCase("system-granted", {QOS: "SYSTEM"}, granted="LSE.SYSTEM"),
    PodCase("system-of-lse", {QOS: "SYSTEM"}, granted="LSE", refusal=GRANT),
    PodCase("cpuset", annotations={CPUSET: CPUSET_VALUE}, refusal="is a scheduler's"),
    PodCase("cpuset-of-scheduler", annotations={CPUSET: CPUSET_VALUE}, scheduler=True),
    PodCase("stand-in", annotations={STAND_IN: "true"}, refusal="no pod may have it"),
    PodCase("stand-in-of-scheduler", annotations={STAND_IN: "true"}, scheduler=True, refusal="no pod may have it"),
    PodCase("later-cpuset", updated_annotations={CPUSET: CPUSET_VALUE}, refusal="is a scheduler's"),
    PodCase("later-cpuset-of-scheduler", updated_annotations={CPUSET: CPUSET_VALUE}, scheduler=True),
    PodCase("later-stand-in", updated_annotations={STAND_IN: "true"}, scheduler=True, refusal="no pod may have it"),
    PodCase("later-note", updated_annotations={"note": "x"}),
    PodCase("later-label", {QOS: "LS"}, updated_labels={QOS: "LS", "app": "x"}),
    PodCase("later-class", {QOS: "LS"}, updated_labels={QOS: "LSE"}, refusal=CHANGED),
    PodCase("without-class", {QOS: "BE"}, band="koord-batch", updated_labels={}, refusal=CHANGED),
    PodCase("later-priority", {"koordinator.sh/priority": "1"}, updated_labels={}, refusal=CHANGED),
    PodCase("later-priority-class", updated_labels={CLASS: "koord-prod"}, refusal=CHANGED),
    PodCase(
        "later-preemptible", updated_labels={"quota.scheduling.koordinator.sh/preemptible": "false"}, refusal=CHANGED
    ),
]
"""Pods that both judge alike."""

QUOTA = "quota.scheduling.koordinator.sh/"


@dataclass(frozen=True)
class QuotaCase:
    """A quota, or what it is updated to, or its deletion, and a text of both refusals."""

    name: str
    least: Mapping[str, str | int] = field(default_factory=lambda: {"cpu": 1})
    most: Mapping[str, str | int] = field(default_factory=lambda: {"cpu": 10})
    labels: Mapping[str, str] = field(default_factory=dict)
    later: "QuotaCase | None" = None
    deleted: bool = False
    refusal: str = ""

    @property
    def quota(self) -> Document:
        """The quota as it is submitted."""
        labels = {QUOTA + name: value for name, value in self.labels.items()}
        return {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {"min": dict(self.least), "max": dict(self.most)},
        }


QUOTAS = [
    QuotaCase("right", {"cpu": "500m", "memory": "1Gi"}, {"cpu": 1, "memory": "2Gi"}),
    QuotaCase("above", {"cpu": 11}, refusal="above"),
    QuotaCase("above-in-text", {"memory": "2Gi"}, {"memory": "2000Mi"}, refusal="above"),
    QuotaCase("lacks", {"memory": 1}, refusal="max lacks"),
    QuotaCase("negative", {"cpu": "-1"}, refusal="0"),
    QuotaCase("grows", later=QuotaCase("grows", {"cpu": 2})),
    QuotaCase("shrinks", later=QuotaCase("shrinks", {"cpu": 2}, {"cpu": 1}), refusal="above"),
    QuotaCase(
        "becomes-parent",
        later=QuotaCase("becomes-parent", labels={"is-parent": "true"}),
        refusal="is-parent cannot be changed",
    ),
    QuotaCase(
        "no-parent-now",
        labels={"is-parent": "true"},
        later=QuotaCase("no-parent-now", labels={"is-parent": "false"}),
        refusal="is-parent cannot be changed",
    ),
    QuotaCase("moves", later=QuotaCase("moves", labels={"tree-id": "t"}), refusal="tree-id cannot be changed"),
    QuotaCase("leaves", deleted=True),
    QuotaCase("koordinator-default-quota", deleted=True, refusal="reserved"),
]
"""Quotas that both judge alike."""
