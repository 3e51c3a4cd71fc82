"""Settings of [cluster]: reports to the API server, and rules from it."""

from typing import Annotated

import msgspec


class ClusterSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[cluster]: off by default, since the agent needs no cluster to measure and judge."""

    enabled: bool | None = None
    """Report to the API server; unset, as soon as `koordlet run` without --standalone finds one. With --standalone,
    which knows no pods, true is refused."""
    kubeconfig: str = ""
    """Path of a kubeconfig; where empty, $KUBECONFIG, ~/.kube/config, then the pod's service account."""
    node_name: str = ""
    """Name of this node's object; $NODE_NAME, then the host's name, where it is empty."""
    events: bool = True
    """Events on pods that lose time, on their culprits, and on pods that are limited."""
    node_metric: bool = True
    """Whether usage, open verdicts and wanted taints are reported in the node's NodeMetric."""
    create_node_metric: bool = True
    """Whether a NodeMetric that is missing is made; where koord-manager runs, it makes them."""
    node_slo: bool = True
    """Whether strategies and host applications follow the node's NodeSLO; the settings hold while there is none."""
    first_report_seconds: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 10.0
    """Time within which the first report comes, at random: agents of one rollout report apart."""
    fleet_baselines: bool = False
    """Judge workloads that are new to this node by what is usual in the fleet (WorkloadProfile objects), and state
    what is usual here in the NodeMetric."""
    fleet_models: bool = False
    """Judge workloads by the anomaly models in their WorkloadProfiles, too (docs/models.md)."""
    rules: bool = False
    """Judge by the InterferenceDetectionRule objects of the cluster in place of the rules of the settings."""
