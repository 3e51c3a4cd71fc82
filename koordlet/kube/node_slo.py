"""This node's NodeSLO as it changes: the spec that strategies and host applications follow."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from api.crds import NODE_SLO
from api.crds.node_slo import HostApplication
from api.settings import SettingsError, convert
from cluster import Client, Document, Informer, InformerSettings, Key, Query, StoreDelta, custom
from koordlet.kube.kept_spec import KeptSpec

_LAST_WAIT_SECONDS = 2.0
_NODE_SLOS = custom(NODE_SLO).of(dict)


class _Applications(msgspec.Struct, frozen=True, rename="camel"):
    host_applications: list[HostApplication] | None = None


@dataclass(frozen=True, slots=True)
class NewSpec:
    """A spec to follow from now on; None where the node has no NodeSLO any more."""

    spec: Mapping[str, Any] | None
    source: str
    """Kind, name and version of the object, for messages."""
    generation: int = 0


def applications_of(spec: Mapping[str, Any], source: str) -> tuple[HostApplication, ...]:
    """Return the host applications of a spec. Raises SettingsError naming the field."""
    applications = spec.get("hostApplications")
    return tuple(convert({"hostApplications": applications}, _Applications, source).host_applications or ())


class ClusterNodeSLO:
    """The NodeSLO of one node; the informer's thread writes, the tick reads `newest`."""

    def __init__(self, client: Client, node: str, settings: InformerSettings, kept: KeptSpec | None = None) -> None:
        """`kept` is followed until the API server has answered."""
        self._lock = threading.Lock()
        self._newest: NewSpec | None = None
        self._node = node
        self._kept = kept
        self._is_answered = False
        spec = kept.load() if kept is not None else None
        if kept is not None and spec is not None:
            self._newest = NewSpec(spec, f"{NODE_SLO.kind} {node} (as kept in {kept.path})")
        query = Query(fields=f"metadata.name={node}")
        self.informer: Informer[Document] = Informer(client, _NODE_SLOS, query, settings=settings)
        self.informer.subscribe(self._on_objects)

    def start(self) -> None:
        """Start to watch."""
        self.informer.start()

    def close(self) -> None:
        """Stop watching; what strategies follow stays."""
        self.informer.stop()
        if self._kept is not None:
            self._kept.wait(_LAST_WAIT_SECONDS)

    @property
    def is_answered(self) -> bool:
        """Whether the API server has answered by the newest call of `newest`."""
        return self._is_answered

    def keep(self, followed: NewSpec) -> None:
        """Keep a spec, none of whose fields was refused, for the next start; called by the one that follows it."""
        if self._kept is not None and self._is_answered:
            self._kept.keep(followed.spec, followed.generation)

    def newest(self) -> NewSpec | None:
        """Return the spec when it changed since the last call, else None. Raises SettingsError for one that is none.

        While the API server is away nothing changes. Its first answer is passed on also where it is that there is none.
        """
        with self._lock:
            if not self._is_answered and self.informer.wait_synced(0):
                self._is_answered = True
                if self.informer.get(Key("", self._node)) is None:
                    self._newest = NewSpec(None, f"{NODE_SLO.kind} {self._node}")
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
                    version = delta.new.get("metadata", {}).get("generation", 0)
                    source = f"{NODE_SLO.kind} {delta.key.name} (generation {version})"
                    self._newest = NewSpec(delta.new.get("spec") or {}, source, version)
