"""topology.node.k8s.io NodeResourceTopology: a node's NUMA zones, as its agent reports them."""

from api.crds.definition import Definition
from api.kube.numa import NodeResourceTopology

NODE_RESOURCE_TOPOLOGY = Definition(
    "NodeResourceTopology",
    "noderesourcetopologies",
    "topology.node.k8s.io",
    NodeResourceTopology,
    later_versions=("v1alpha2",),
    status=False,
    short_names=("node-res-topo",),
    approval="https://github.com/kubernetes/enhancements/pull/1870",
)
