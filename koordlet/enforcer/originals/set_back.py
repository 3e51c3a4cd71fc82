"""Originals that systemd sets back, and which are set again: no program decided against the value.

When one property of a unit's controller changes, systemd writes every file of that controller with the values that it
knows of. The kubelet with its systemd driver tells it the weight of the QoS slices each minute and with each pod that
starts; so their cpu.max is set back as often. `systemctl daemon-reload` does the same to every unit.
"""

import os
from collections.abc import Iterable

from koordlet.enforcer.journal_format import JournalEntry
from koordlet.enforcer.originals.rollback import Ownership, inspect
from koordlet.enforcer.writer import Writer
from koordlet.host.attributes import KernelFile

REASON = "systemd set the original back"
_UNITS = (".slice", ".scope", ".service")
"""Endings of the names of systemd's cgroups; those below them that are no units it does not write."""


def is_set_back(entry: JournalEntry, ownership: Ownership) -> bool:
    """Return whether a file of a unit has its original again in place of another value of ours."""
    return ownership is Ownership.ORIGINAL and entry.ours[-1] != entry.original and _may_be_set_back(entry)


def _may_be_set_back(entry: JournalEntry) -> bool:
    attribute = entry.attribute
    is_file = isinstance(attribute, KernelFile) and attribute.is_cgroup and not entry.by_kernel
    return is_file and os.path.dirname(attribute.path).endswith(_UNITS)


def found_set_back(entries: Iterable[JournalEntry], writer: Writer) -> list[tuple[JournalEntry, str]]:
    """Return the entries that were set back, each with the text found; what cannot be read is left out."""
    found = []
    for entry in filter(_may_be_set_back, entries):
        try:
            ownership, text = inspect(entry, writer)
        except OSError:
            continue
        if is_set_back(entry, ownership):
            found.append((entry, text))
    return found


def set_again(entry: JournalEntry, writer: Writer) -> None:
    """Write our value. Raises OSError."""
    writer.write(entry.attribute, entry.ours[-1], {entry.original, *entry.ours}, entry.identity)
