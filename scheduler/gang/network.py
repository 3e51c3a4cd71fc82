"""The network as a tree of domains above the nodes, and the domain that a gang is placed in.

The layers are those of the ClusterNetworkTopology object, the domains the values of its labels on nodes. Rules and
order are Koordinator's: of the domains that hold all members, those of the deepest layer; of them the one nearest to
pods that belong together, then the one with the least room. Inside it, the part with the most room is filled first, so
that members are spread over as few parts as possible. In the domains of a layer, members may have to come in multiples.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from api.crds.placement import ClusterNetworkTopologySpec, TopologyLayer
from api.kube.annotations import decode_annotation
from api.kube.meta import Wire
from api.kube.objects import Node
from scheduler.cluster_state.columns import Row

CLUSTER_LAYER = "ClusterTopologyLayer"
NODE_LAYER = "NodeTopologyLayer"
MAX_LAYERS = 32


class NetworkError(ValueError):
    """The layers of a ClusterNetworkTopology make no tree; the message names the layer."""


class _Rule(Wire, frozen=True):
    layer: str = ""
    strategy: str = ""
    pod_count_multiple: int = 0


class _Spec(Wire, frozen=True):
    gather_strategy: list[_Rule] = msgspec.field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Gathering:
    """How near to each other the members of a gang are placed."""

    must: tuple[str, ...] = ()
    """Layers of which one domain must hold all members."""
    multiples: Mapping[str, int] = field(default_factory=dict)
    """Number by layer of which the count of members in each domain must be a multiple."""

    @classmethod
    def read(cls, text: str) -> "Gathering":
        """Read the annotation `network-topology-spec`. Raises AnnotationError."""
        rules = decode_annotation(text, _Spec).gather_strategy
        return cls(
            tuple(rule.layer for rule in rules if rule.strategy == "MustGather"),
            {rule.layer: rule.pod_count_multiple for rule in rules if rule.pod_count_multiple > 1},
        )

    @property
    def strict(self) -> bool:
        """Return whether members may have to wait although nodes have room."""
        return bool(self.must or self.multiples)


@dataclass(slots=True, eq=False)
class Domain:
    """A part of the network: the cluster, a member of a layer, or a node."""

    layer: str
    name: str
    parent: "Domain | None" = None
    children: dict[str, "Domain"] = field(default_factory=dict)
    row: Row = -1
    """The node's row; -1 above the nodes."""
    offer: int = 0
    """Members that it has room for."""
    existing: int = 0
    """Pods in it that belong together with the members."""

    def lineage(self) -> Iterator["Domain"]:
        """The domain and those around it, outwards."""
        domain: Domain | None = self
        while domain is not None:
            yield domain
            domain = domain.parent

    def below(self) -> Iterable["Domain"]:
        """The parts of the domain."""
        return self.children.values()

    def rows(self) -> Iterator[Row]:
        """The rows of its nodes."""
        if self.layer == NODE_LAYER:
            yield self.row
        for child in self.below():
            yield from child.rows()


Slots: TypeAlias = list[tuple[Domain, int]]
"""Nodes in order, with the number of members that each gets."""


def layers_of(spec: ClusterNetworkTopologySpec) -> tuple[TopologyLayer, ...]:
    """Return the layers from the widest to the nodes. Raises NetworkError."""
    known = {layer.topology_layer: layer for layer in spec.network_topology_spec}
    if not known or len(known) != len(spec.network_topology_spec) or len(known) > MAX_LAYERS:
        raise NetworkError(f"expected up to {MAX_LAYERS} layers, each named once")
    chain: list[TopologyLayer] = []
    name = NODE_LAYER
    while len(chain) < len(known):
        if name not in known or known[name] in chain:
            raise NetworkError(f"layer {name!r} is not there, or not above the nodes once")
        chain.append(known[name])
        name = known[name].parent_topology_layer
    return tuple(reversed(chain))


class NetworkTree:
    """The domains of a cluster's nodes. Nodes without the labels of a wider layer are in none."""

    def __init__(self, layers: Sequence[TopologyLayer], nodes: Iterable[tuple[Row, Node]]) -> None:
        self.root = Domain(CLUSTER_LAYER, "")
        self.leaves: dict[Row, Domain] = {}
        """The nodes by row."""
        self.layers = (CLUSTER_LAYER, *(layer.topology_layer for layer in layers))
        self._labelled = tuple(layers)
        for row, node in nodes:
            names = _names(layers, node)
            if names is None:
                continue
            domain = self.root
            for layer, name in zip(self.layers[1:], names, strict=True):
                child = domain.children.get(name)
                if child is None:
                    child = domain.children[name] = Domain(layer, name, domain)
                domain = child
            domain.row = row
            self.leaves[row] = domain

    def holds(self, row: Row, node: Node) -> bool:
        """Return whether a node, as it is now, is where the tree has it: in these domains, or in none."""
        leaf, names = self.leaves.get(row), _names(self._labelled, node)
        if leaf is None or names is None:
            return leaf is None and names is None
        return [domain.name for domain in leaf.lineage()] == [*reversed(names), self.root.name]

    def must_layer(self, gathering: Gathering) -> str:
        """Return the layer of the narrowest domains that must hold all members; the cluster without any."""
        found = [layer for layer in reversed(self.layers) if layer in gathering.must]
        return found[0] if found else gathering.must[0] if gathering.must else CLUSTER_LAYER

    def part(self, row: Row, layer: str) -> Domain | None:
        """Return the domain of a layer that a node is in; None for a node that is in none."""
        leaf = self.leaves.get(row)
        return next((domain for domain in leaf.lineage() if domain.layer == layer), None) if leaf is not None else None

    def details(self) -> list[dict[str, Any]]:
        """Return the domains above the nodes as the object's status states them, from the root down."""
        found: list[dict[str, Any]] = []
        _describe(self.root, found)
        return found

    def weigh(self, offers: Mapping[Row, int], existing: Mapping[Row, int], multiples: Mapping[str, int]) -> None:
        """Sum up from the nodes what domains have room for, in the multiples asked for, and the pods in them."""
        _weigh(self.root, offers, existing, multiples)

    def at(self, layer: str) -> list[Domain]:
        """Return the domains of a layer."""
        found = [self.root]
        while found and found[0].layer != layer:
            found = [child for domain in found for child in domain.below()]
        return found

    def placements(
        self, must: str, multiples: Mapping[str, int], members: int, held: frozenset[Row]
    ) -> Iterator[Slots]:
        """Yield the ways to place so many members, best first.

        `held` are rows of other members: the domain that must hold all has to hold these too.
        """
        layer = [domain for domain in self.at(must) if not held or held <= set(domain.rows())]
        able: list[Domain] = []
        while layer:
            enough = [domain for domain in layer if domain.offer >= members]
            able = enough or able
            layer = [child for domain in enough for child in domain.below()]
        for domain in sorted(able, key=lambda domain: order(domain, roomiest=False)):
            slots = distribute(domain, members, multiples)
            if sum(count for _, count in slots) == members:
                yield slots


def order(domain: Domain, *, roomiest: bool) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Sort key: nearest to pods that belong together; then least room, or most; each layer by layer, outwards."""
    lineage = list(domain.lineage())
    room = tuple(-each.offer if roomiest else each.offer for each in lineage)
    return tuple(-each.existing for each in lineage), room, domain.name


def distribute(domain: Domain, members: int, multiples: Mapping[str, int]) -> Slots:
    """Return how many of so many members the nodes of a domain get, as far as it has room."""
    count = _multiple(min(domain.offer, members), multiples.get(domain.layer, 1))
    if domain.layer == NODE_LAYER:
        return [(domain, count)]
    slots: Slots = []
    for child in sorted(domain.below(), key=lambda child: order(child, roomiest=True)):
        given = distribute(child, count, multiples)
        count -= sum(number for _, number in given)
        slots += given
    return slots


def _names(layers: Sequence[TopologyLayer], node: Node) -> list[str] | None:
    names: list[str] = []
    for index, layer in enumerate(layers):
        if layer.topology_layer == NODE_LAYER:
            name = node.name
        else:
            name = ""
            for key in layer.label_key:
                name = name or node.metadata.labels.get(key, "")
        if not name and index == len(layers) - 2:
            name = node.name  # Without the layer next to it, a node makes a domain of its own.
        if not name:
            return None
        names.append(name)
    return names


def _weigh(
    domain: Domain, offers: Mapping[Row, int], existing: Mapping[Row, int], multiples: Mapping[str, int]
) -> None:
    if domain.layer == NODE_LAYER:
        domain.offer, domain.existing = offers.get(domain.row, 0), existing.get(domain.row, 0)
    else:
        domain.offer = domain.existing = 0
        for child in domain.below():
            _weigh(child, offers, existing, multiples)
            domain.offer += child.offer
            domain.existing += child.existing
    domain.offer = _multiple(domain.offer, multiples.get(domain.layer, 1))


def _multiple(count: int, of: int) -> int:
    return count // of * of


def _describe(domain: Domain, found: list[dict[str, Any]]) -> int:
    """Append what the status says of a domain and its parts; return the number of its nodes."""
    if domain.layer == NODE_LAYER:
        return 1
    entry: dict[str, Any] = {"topologyInfo": _stated(domain)}
    found.append(entry)
    if domain.parent is not None:
        entry["parentTopologyInfo"] = _stated(domain.parent)
    children = sorted(domain.below(), key=lambda child: child.name)
    if children:
        entry["childTopologyLayer"] = children[0].layer
        if children[0].layer != NODE_LAYER:
            entry["childTopologyNames"] = [child.name for child in children]
    entry["nodeNum"] = sum(_describe(child, found) for child in children)
    return int(entry["nodeNum"])


def _stated(domain: Domain) -> dict[str, str]:
    return {"topologyLayer": domain.layer, "topologyName": domain.name}
