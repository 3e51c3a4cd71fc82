"""This node's NodeSLO as it changes: the spec that strategies and host applications follow."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from api.crds import NODE_SLO
from api.crds.node_slo import HostApplication
from api.settings import SettingsError, convert
from cluster import Client, Document, Informer, InformerSettings, Query, StoreDelta, custom

_NODE_SLOS = custom(NODE_SLO).of(dict)


class _Applications(msgspec.Struct, frozen=True, rename="camel"):
    host_applications: list[HostApplication] | None = None


@dataclass(frozen=True, slots=True)
class NewSpec:
    """A spec to follow from now on; None where the node has no NodeSLO any more."""

    spec: Mapping[str, Any] | None
    source: str
    """Kind, name and version of the object, for messages."""


def applications_of(spec: Mapping[str, Any], source: str) -> tuple[HostApplication, ...]:
    """Return the host applications of a spec. Raises SettingsError naming the field."""
    applications = spec.get("hostApplications")
    return tuple(convert({"hostApplications": applications}, _Applications, source).host_applications or ())


class ClusterNodeSLO:
    """The NodeSLO of one node; the informer's thread writes, the tick reads `newest`."""

    def __init__(self, client: Client, node: str, settings: InformerSettings) -> None:
        self._lock = threading.Lock()
        self._newest: NewSpec | None = None
        query = Query(fields=f"metadata.name={node}")
        self.informer: Informer[Document] = Informer(client, _NODE_SLOS, query, settings=settings)
        self.informer.subscribe(self._on_objects)

    def start(self) -> None:
        """Start to watch."""
        self.informer.start()

    def close(self) -> None:
        """Stop watching; what strategies follow stays."""
        self.informer.stop()

    def newest(self) -> NewSpec | None:
        """Return the spec when it changed since the last call, else None. Raises SettingsError for one that is none.

        While the API server is away nothing changes.
        """
        with self._lock:
            newest, self._newest = self._newest, None
        if newest is not None and newest.spec is not None and not isinstance(newest.spec, Mapping):
            raise SettingsError(newest.source, "spec", "must be an object")
        return newest

    def _on_objects(self, deltas: Sequence[StoreDelta[Document]]) -> None:
        with self._lock:
            for delta in deltas:
                if delta.new is None:
                    self._newest = NewSpec(None, f"{NODE_SLO.kind} {delta.key.name}")
                elif delta.old is None or delta.old.get("spec") != delta.new.get("spec"):
                    version = delta.new.get("metadata", {}).get("generation", "")
                    source = f"{NODE_SLO.kind} {delta.key.name} (generation {version})"
                    self._newest = NewSpec(delta.new.get("spec") or {}, source)
