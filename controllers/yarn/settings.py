"""Settings of koord-yarn-copilot."""

from typing import Annotated, Literal

import msgspec

from controllers.runtime.settings import LoopSettings, Positive

Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]


class ClusterSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Table `[clusters.NAME]`: one YARN cluster and how to speak to it."""

    addresses: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """URLs of its ResourceManagers, as in yarn.resourcemanager.webapp.address: "http://rm1:8088"."""
    user: str = ""
    """User for simple authentication; must be in yarn.admin.acl."""
    token_file: str = ""
    """File with the value of the header `authorization_header`, read for each request."""
    authorization_header: str = "Authorization"
    """Header that carries it. A delegation token of YARN goes into Hadoop-YARN-RM-Delegation-Token."""
    ca_file: str = ""
    """Authority of the ResourceManagers' certificates."""
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0, le=3)] = 3.0
    """Longest wait for one answer; the whole of a list of nodes has ten times as long. What is sent while this process
    leads ends before another one may lead."""

    def __post_init__(self) -> None:
        for address in self.addresses:
            if not address.startswith(("http://", "https://")):
                raise ValueError(f"addresses: {address} must begin with http:// or https://")
        if self.token_file and any(not each.startswith("https://") for each in self.addresses):
            raise ValueError("token_file: a token is sent over https:// only; change addresses")


class SharingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Table `[sharing]`: how much of a node's batch resources YARN gets."""

    mode: Literal["split", "first-come"] = "split"
    """split: what neither side uses is divided, and nothing is sold twice. first-come, as Koordinator: both are offered
    all that is free, and the one that comes later may find it taken."""
    free_percent: Percent = 50
    """Percent of what neither side uses that YARN is offered; for `split`."""
    max_percent: Percent = 100
    """Most that YARN may get, in percent of the node's batch resources."""
    step_percent: Percent = 5
    """Change of an offer, in percent of the node's batch resources, that is worth a request; cuts below what is safe
    are made at once."""
    millicores_per_vcore: Annotated[int, msgspec.Meta(ge=1)] = 1000
    """Millicores of batch-cpu in a virtual core of YARN."""
    overcommit_timeout_seconds: float = 30.0
    """Time after which the ResourceManager preempts containers beyond a lowered resource; negative is never."""
    linger_seconds: Positive = 600.0
    """Time for which what a lost NodeManager held stays held where the node's agent does not report its use."""


class CopilotSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of koord-yarn-copilot. Without a cluster it does nothing."""

    clusters: dict[str, ClusterSettings] = {}
    """YARN clusters by name; the annotation yarn.hadoop.apache.org/cluster-id of a NodeManager's pod chooses."""
    namespaces: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("hadoop-yarn",)
    """Namespaces whose pods count as NodeManagers: the right to create pods there decides what YARN is offered."""
    application: str = "hadoop-yarn"
    """Name of the allocation in the node's annotation, and of the host application in NodeSLO and NodeMetric."""
    sharing: SharingSettings = SharingSettings()
    poll_seconds: Positive = 5.0
    """Interval between two questions to each ResourceManager."""
    loop: LoopSettings = LoopSettings(requests_per_second=50.0, burst=100)
