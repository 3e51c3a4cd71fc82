"""Layers of a strategy: built-in defaults, the cluster's, and that of the first node entry that matches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.kube.meta import LabelSelector
from api.kube.selectors import label_selector_matches

Plain = dict[str, Any]


def overlay(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> Plain:
    """Return `lower` with the fields of `upper` that are not null, object by object; lists are replaced whole."""
    merged: Plain = dict(lower)
    for name, value in upper.items():
        present = merged.get(name)
        if isinstance(present, Mapping) and isinstance(value, Mapping):
            merged[name] = overlay(present, value)
        elif value is not None:
            merged[name] = value
    return merged


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """One entry for some nodes: its selector (None matches nothing) and its strategy over the cluster's."""

    name: str
    selector: LabelSelector | None
    strategy: Plain


@dataclass(frozen=True, slots=True)
class Layers:
    """Strategies of one part of the configuration."""

    cluster: Plain
    entries: tuple[NodeEntry, ...] = ()

    def entry_for(self, labels: Mapping[str, str]) -> int:
        """Return the index of the first entry that matches a node's labels; -1 for none."""
        for index, entry in enumerate(self.entries):
            if label_selector_matches(entry.selector, labels):
                return index
        return -1

    def strategy(self, index: int) -> Plain:
        """Return the strategy of an entry; -1 is the cluster's."""
        return self.cluster if index < 0 else self.entries[index].strategy

    def source(self, index: int) -> str:
        """Return where the strategy of an entry comes from, for people."""
        if index < 0:
            return "the cluster strategy"
        return f"node entry {self.entries[index].name or index}"
