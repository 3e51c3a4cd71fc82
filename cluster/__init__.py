"""Client of the API server, the only one here, and its in-process twin for tests, simulators and benchmarks.

Reading
    `connect()` finds the server as kubectl does and gives a `Client`; `Client(plain_endpoint(url))` speaks
    to the twin. `client.get / find / list` decode to the type that a `Resource` names: the builtin ones
    (`PODS`, `NODES`, ...) give JSON documents, `PODS.of(Pod)` gives structs with only the fields a program
    reads, and `custom(WORKLOAD_PROFILE)` the kinds of `api.crds`. `Informer` keeps a local copy and gives
    subscribers every change exactly once:

        informer = Informer(client, PODS.of(Pod), Query(fields="spec.nodeName="))
        informer.subscribe(on_deltas)      # batches of Delta(type, key, old, new), in the informer's thread
        informer.start()
        informer.wait_synced(30.0)

Writing
    `client.create / patch / modify / update / delete`; `bind` and `evict` for pods, whose results are values
    (`BindOutcome`, `EvictionResult`). Lost answers are resolved by reading the object, so a write is neither
    lost nor doubled; what cannot be resolved raises an error with `ambiguous` set. `patch` is the write of
    choice; `modify` re-reads on conflict.

Sharing the API server
    Each client has a rate limit and jittered back-off and honours Retry-After. `Elector` competes for a
    Lease; `EventRecorder` sends Events as series. Errors are the tree under `ClusterError`.

Twin
    `cluster.twin.Twin` serves the same API over HTTP on loopback, with faults on request;
    `python -m cluster.twin` serves it from a process of its own.

This package imports `api` and nothing else of the project; `kubernetes` is imported here only, when needed.
"""

from pathlib import Path

from cluster.client import Client
from cluster.config import load_endpoint, plain_endpoint
from cluster.errors import (
    AlreadyExists,
    ApiError,
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotConfigured,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Undecodable,
    Withheld,
)
from cluster.events import Event, EventRecorder, RecorderSettings
from cluster.informer import Informer, InformerSettings
from cluster.kept_object import KeptObject
from cluster.leases import Elector, LeaseSettings
from cluster.listing import Identity, Item, Listing
from cluster.outcomes import BindOutcome, EvictionOutcome, EvictionResult
from cluster.pods import Binding, bind, evict
from cluster.rate_limit import Backoff, TokenBucket
from cluster.repeating import Repeating
from cluster.resources import (
    CONFIG_MAPS,
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    EVENTS,
    JOBS,
    LEASES,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    VOLUME_ATTACHMENTS,
    Document,
    Key,
    Patch,
    PatchType,
    Query,
    Resource,
    apply_patch,
    custom,
    merge_patch,
    strategic_patch,
)
from cluster.settings import ClientSettings, DeleteOptions
from cluster.store import DeltaType, StoreDelta
from cluster.transport import Endpoint
from cluster.watch import ChangeType, Watch, WatchEvent

__all__ = [
    "CONFIG_MAPS",
    "CSI_DRIVERS",
    "CSI_NODES",
    "CSI_STORAGE_CAPACITIES",
    "CUSTOM_RESOURCE_DEFINITIONS",
    "DAEMON_SETS",
    "DEPLOYMENTS",
    "DEVICE_CLASSES",
    "EVENTS",
    "JOBS",
    "LEASES",
    "MUTATING_WEBHOOK_CONFIGURATIONS",
    "NAMESPACES",
    "NODES",
    "PERSISTENT_VOLUMES",
    "PERSISTENT_VOLUME_CLAIMS",
    "PODS",
    "POD_DISRUPTION_BUDGETS",
    "PRIORITY_CLASSES",
    "REPLICATION_CONTROLLERS",
    "REPLICA_SETS",
    "RESOURCE_CLAIMS",
    "RESOURCE_SLICES",
    "SECRETS",
    "SERVICES",
    "STATEFUL_SETS",
    "STORAGE_CLASSES",
    "VALIDATING_WEBHOOK_CONFIGURATIONS",
    "VOLUME_ATTACHMENTS",
    "AlreadyExists",
    "ApiError",
    "Backoff",
    "BindOutcome",
    "Binding",
    "ChangeType",
    "Client",
    "ClientSettings",
    "ClusterError",
    "Conflict",
    "DeleteOptions",
    "DeltaType",
    "Document",
    "Elector",
    "Endpoint",
    "Event",
    "EventRecorder",
    "EvictionOutcome",
    "EvictionResult",
    "Expired",
    "Forbidden",
    "Identity",
    "Informer",
    "InformerSettings",
    "Invalid",
    "Item",
    "KeptObject",
    "Key",
    "LeaseSettings",
    "Listing",
    "NotConfigured",
    "NotFound",
    "Patch",
    "PatchType",
    "Query",
    "RecorderSettings",
    "Repeating",
    "Resource",
    "StoreDelta",
    "TokenBucket",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "Undecodable",
    "Watch",
    "WatchEvent",
    "Withheld",
    "apply_patch",
    "bind",
    "connect",
    "custom",
    "evict",
    "load_endpoint",
    "merge_patch",
    "plain_endpoint",
    "strategic_patch",
]


def connect(
    settings: ClientSettings | None = None, *, kubeconfig: Path | None = None, context: str | None = None
) -> Client:
    """Return a client of the server that the environment configures: kubeconfig first, then the pod's account.

    Raises `NotConfigured` when there is neither.
    """
    return Client(load_endpoint(kubeconfig=kubeconfig, context=context), settings)
