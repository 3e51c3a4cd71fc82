"""What the plans and the exchange with the ResourceManagers know of each other: reports one way, offers the other."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from controllers.yarn.protocol import Capability, NodeReport


@dataclass(frozen=True, slots=True)
class Offer:
    """A resource that a NodeManager is to get, decided while the ResourceManager reported `seen` as its present one."""

    capability: Capability
    seen: Capability
    reason: str = field(compare=False)


class Board:
    """Reports and offers by cluster and node id. Everything is read and changed while it is held.

    A plan holds it from reading a report to stating its offers, the exchange from reading an offer to noting that it
    is sent: a plan either sees that an offer is on its way, or replaces it before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reports: dict[str, Mapping[str, NodeReport]] = {}
        self._problems: dict[str, str] = {}
        self._offers: dict[str, dict[str, Offer]] = {}
        self._news: dict[str, threading.Event] = {}

    def news(self, cluster: str) -> threading.Event:
        """Return what is set when a change is first offered to a node of the cluster."""
        return self._news.setdefault(cluster, threading.Event())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep all others from the board. Not reentrant."""
        with self._lock:
            yield

    def reports(self, cluster: str) -> Mapping[str, NodeReport] | None:
        """Return the cluster's nodes by id; None while no ResourceManager of it answers."""
        return self._reports.get(cluster)

    def problem(self, cluster: str) -> str:
        """Return why there are no reports."""
        return self._problems.get(cluster, "it has not been asked yet")

    def report(self, cluster: str, nodes: Mapping[str, NodeReport]) -> None:
        """Take in a list of nodes that was asked for after all offers sent were answered."""
        self._reports[cluster] = nodes
        self._problems.pop(cluster, None)

    def forget(self, cluster: str, problem: str) -> None:
        """Note that the cluster does not answer: nothing is decided by old reports."""
        self._reports.pop(cluster, None)
        self._offers.pop(cluster, None)
        self._problems[cluster] = problem

    def offer(self, offers: dict[str, dict[str, Offer]]) -> None:
        """Replace all offers."""
        for cluster, of_cluster in offers.items():
            before = self._offers.get(cluster, {})
            if any(each.capability != each.seen and before.get(node) != each for node, each in of_cluster.items()):
                self.news(cluster).set()
        self._offers = offers

    def withdraw(self, cluster: str) -> None:
        """Drop the offers to a cluster: another process decides now."""
        self._offers.pop(cluster, None)

    def offers(self, cluster: str) -> Mapping[str, Offer]:
        """Return the offers to nodes of a cluster."""
        return self._offers.get(cluster, {})

    def send(self, cluster: str, node_id: str) -> Offer | None:
        """Return an offer and note that it is on its way; None where it was withdrawn, or made on another report.

        Until the next report the node counts as having the larger of both: whether the request arrives is not known.
        """
        offer, nodes = self.offers(cluster).get(node_id), self._reports.get(cluster)
        if offer is None or nodes is None or node_id not in nodes or nodes[node_id].total != offer.seen:
            return None
        total = nodes[node_id].total
        larger = Capability(max(total.vcores, offer.capability.vcores), max(total.mib, offer.capability.mib))
        self._reports[cluster] = {**nodes, node_id: replace(nodes[node_id], total=larger)}
        return offer
