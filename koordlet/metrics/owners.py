"""Owners of pods as series: with them, whatever has `namespace` and `pod` can be summed by workload."""

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily

from api.cgroup_names import owner_of
from api.frame import CgroupInfo
from koordlet.metrics.labels import Labels, short

NAME = "koord_pod_owner"
LABELS = ("namespace", "pod", "owner_kind", "owner_name")
"""As kube-state-metrics has them."""
TEXT = "1 for a pod that has series of its own and an owner"


def owners(cgroups: Iterable[CgroupInfo]) -> GaugeMetricFamily:
    """Return a series of value 1 for each pod of these cgroups that has an owner."""
    found: dict[Labels, Labels] = {}
    for info in cgroups:
        kind, _, name = owner_of(info).partition(" ")
        if name:
            found[info.namespace, info.pod] = (kind, short(name))
    family = GaugeMetricFamily(NAME, TEXT, labels=LABELS)
    for pod, owner in found.items():
        family.add_metric((*pod, *owner), 1.0)
    return family
