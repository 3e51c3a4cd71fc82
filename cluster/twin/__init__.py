"""An API server for tests, simulators and benchmarks: the real one's rules over real HTTP, faults on request.

    with Twin() as twin:
        twin.load(NODES, [{"metadata": {"name": "n1"}}])
        client = twin.client()
        twin.faults.add(Fault(FaultType.DROP, verbs=frozenset({"bind"}), probability=0.1, after=True))

It keeps resource versions, optimistic concurrency, watches with history and bookmarks, selectors, chunked
lists, the four patch types, status, binding and eviction subresources, graceful deletion, finalizers and
custom kinds. It has no users, no quotas, no webhooks and no validation beyond identity: where a real
server refuses a malformed spec, the twin stores it.
"""

from cluster.twin.faults import Fault, Faults, FaultType
from cluster.twin.twin import UNLIMITED, Twin, TwinSettings

__all__ = ["UNLIMITED", "Fault", "FaultType", "Faults", "Twin", "TwinSettings"]
