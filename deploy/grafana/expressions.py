"""Parts of PromQL expressions and labels that the dashboards share."""

from collections.abc import Sequence

from .board import Query, Variable

RATE = "[$__rate_interval]"
OF_NODE = 'instance=~"$instance"'
BELOW_ROOT = OF_NODE + ',cgroup!="/"'
"""Cgroups but the root, whose hierarchical series are those of the node."""
OF_POD = 'namespace=~"$namespace",pod=~"$pod",cgroup=~"$cgroup"'
OF_VICTIM = 'namespace=~"$namespace",pod=~"$pod",victim_cgroup=~"$cgroup"'
INSTANCES = Variable("instance", "label_values(koord_build_info, instance)")
PLACE = "namespace, pod, container, cgroup"
WHO = "{{namespace}}/{{pod}}/{{container}} {{cgroup}}"
CULPRIT = "culprit_namespace, culprit_pod, culprit_container, culprit_cgroup"
BY_CULPRIT = "{{culprit_namespace}}/{{culprit_pod}}/{{culprit_container}} {{culprit_cgroup}}"
BLAMED = ("cpu", "memory", "blockio")


def rate(series: str, selector: str = "", by: str = "") -> str:
    """Return the summed rate of a counter by some of its labels."""
    chosen = f"{{{selector}}}" if selector else ""
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({series}{chosen}{RATE}))"


def counted_once(series: str, selector: str, window: str = "") -> str:
    """Return a hierarchical series of containers and of what is no pod: a pod's own cgroup has its containers' again.

    With a `window` the rate is meant.
    """
    kept = ('container!="",container!="POD"', 'pod="",cgroup!~"/kubepods.*"')
    each = (f"{series}{{{selector},{more}}}{window}" for more in kept)
    return " or ".join(f"rate({one})" if window else one for one in each)


def quantile(ratio: float, family: str, selector: str = "", by: str = "") -> str:
    """Return a quantile of a histogram."""
    chosen = f"{{{selector}}}" if selector else ""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({ratio}, sum by ({labels}) (rate({family}_bucket{chosen}{RATE})))"


def top(count: int, expression: str) -> str:
    """Return the largest series of an expression that are not zero."""
    return f"topk({count}, {expression} > 0)"


def one(expression: str, legend: str = "") -> Sequence[Query]:
    """Return a single query."""
    return (Query(expression, legend),)
