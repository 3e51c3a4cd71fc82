"""This node's object at the API server: its reference, and the amounts that may be requested on it."""

from collections.abc import Callable, Mapping

import msgspec

from api.kube.meta import ObjectReference
from api.kube.objects import Node
from api.kube.resources import QuantityError, Resources, parse_resources
from api.protocol import ANNOTATION_NODE_RAW_ALLOCATABLE
from cluster import NODES, Client, Informer, InformerSettings, Key, Query

NodeOf = Callable[[], Node | None]
"""The newest object of this node; never waits."""


class NodeObject:
    """The node as last seen; a server that is away changes nothing."""

    def __init__(self, client: Client, name: str, settings: InformerSettings, node_of: NodeOf | None = None) -> None:
        """`node_of` is who watches it already; without, it is watched here."""
        self._name = name
        self.informer: Informer[Node] | None = None
        if node_of is None:
            self.informer = Informer(client, NODES.of(Node), Query(fields=f"metadata.name={name}"), settings=settings)
        self._node_of = node_of or self._watched

    def start(self) -> None:
        """Start to watch, unless the watch runs already."""
        if self.informer is not None:
            self.informer.start()

    def stop(self, timeout_seconds: float) -> None:
        """Stop; idempotent."""
        if self.informer is not None:
            self.informer.stop(timeout_seconds)

    def reference(self) -> ObjectReference:
        """Return the reference that Events about the node carry; its uid is the node's name, as the kubelet's is."""
        return ObjectReference(api_version="v1", kind="Node", name=self._name, uid=self._name)

    def allocatable(self) -> Mapping[str, int]:
        """Return what pods may request, without amplification; empty before the node was seen."""
        node = self._node_of()
        return allocatable_of(node) if node else {}

    def _watched(self) -> Node | None:
        return self.informer.get(Key("", self._name)) if self.informer is not None else None


def allocatable_of(node: Node) -> Resources:
    """Return the node's own allocatable amounts: those before amplification where an annotation has them."""
    raw = node.metadata.annotations.get(ANNOTATION_NODE_RAW_ALLOCATABLE)
    amounts = _read(node.status.allocatable)
    if raw:
        try:
            amounts |= _read(msgspec.json.decode(raw, type=dict[str, str | int | float]))
        except msgspec.MsgspecError:
            return amounts
    return amounts


def _read(quantities: Mapping[str, str | int | float]) -> Resources:
    try:
        return parse_resources(quantities)
    except QuantityError:
        return {}
