"""Settings of [cluster]: reports to the API server, and rules from it."""

from typing import Annotated

import msgspec


class ClusterSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[cluster]: off by default, since the agent needs no cluster to measure and judge."""

    enabled: bool = False
    kubeconfig: str = ""
    """Path of a kubeconfig; where empty, $KUBECONFIG, ~/.kube/config, then the pod's service account."""
    node_name: str = ""
    """Name of this node's object; $NODE_NAME, then the host's name, where it is empty."""
    events: bool = True
    """Events on pods that lose time."""
    annotation: bool = True
    """Whether the node object is annotated with the open verdicts."""
    annotation_seconds: Annotated[float, msgspec.Meta(ge=5, le=3600)] = 60.0
    """Time between two writes of the annotation while only amounts change; openings and closings wait 5 s at most."""
    rules: bool = False
    """Judge by the InterferenceDetectionRule objects of the cluster in place of the rules of the settings."""
