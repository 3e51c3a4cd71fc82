"""Rollback: restore the originals of attributes that still hold a text of ours, in an order that the kernel accepts."""

import errno
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from api.intents import Knob
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.journal_format import JournalEntry
from koordlet.enforcer.write_order import KnobChange, order
from koordlet.enforcer.writer import Writer
from koordlet.host.attributes import KernelFile, ResourceTasks, parent_list
from koordlet.host.knobs.direction import direction
from koordlet.host.knobs.knobs import Assignment

_GONE = (errno.ENOENT, errno.ENODEV)

_Found = tuple[JournalEntry, str]
"""An entry and the present text of its attribute."""


class Ownership(Enum):
    """State of an attribute that the agent changed."""

    OURS = "ours"
    PARTLY = "partly"
    """Some processes have our text and some the original."""
    ORIGINAL = "original"
    FOREIGN = "foreign"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class RollbackResult:
    """Outcome for one attribute; `before` is the text found there. FAILED ones are still ours."""

    entry: JournalEntry
    outcome: Outcome
    before: str
    reason: str


def inspect(entry: JournalEntry, writer: Writer) -> tuple[Ownership, str]:
    """State and present text of an entry's attribute. Raises OSError where it cannot be read."""
    if writer.identity(entry.attribute) != entry.identity:
        return Ownership.GONE, ""
    texts = writer.read(entry.attribute)
    if texts is None:
        return Ownership.GONE, ""
    shown = ",".join(sorted(texts))
    if entry.by_kernel and texts <= {entry.original, *entry.ours}:
        return Ownership.OURS, shown
    if not texts or texts == {entry.original}:
        return Ownership.ORIGINAL, shown
    if not texts & set(entry.ours):
        return Ownership.FOREIGN, shown
    return (Ownership.PARTLY if entry.original in texts else Ownership.OURS), shown


def roll_back(entries: Iterable[JournalEntry], writer: Writer) -> list[RollbackResult]:
    """Inspect each attribute and restore those that are ours."""
    results: list[RollbackResult] = []
    ours: dict[tuple[str, str], list[_Found]] = defaultdict(list)
    for entry in entries:
        try:
            ownership, text = inspect(entry, writer)
        except OSError as error:
            results.append(RollbackResult(entry, Outcome.FAILED, "", str(error)))
            continue
        if ownership in (Ownership.OURS, Ownership.PARTLY):
            ours[entry.target, entry.knob].append((entry, text))
        else:
            results.append(RollbackResult(entry, *_unwritten(ownership, text)))
    for owner, found in list(ours.items()):
        if all(entry.by_kernel and text == entry.original for entry, text in found):
            # Its cause is restored already, and it with that.
            results += [RollbackResult(entry, *_unwritten(Ownership.ORIGINAL, text)) for entry, text in ours.pop(owner)]
    results += _write_originals(ours, writer)
    return results


def _unwritten(ownership: Ownership, text: str) -> tuple[Outcome, str, str]:
    if ownership == Ownership.GONE:
        return Outcome.GONE, "", "the cgroup is no more"
    if ownership == Ownership.ORIGINAL:
        return Outcome.UNCHANGED, text, "the original was there already"
    return Outcome.FOREIGN_WRITE, text, "another program wrote there meanwhile"


def _write_originals(ours: dict[tuple[str, str], list[_Found]], writer: Writer) -> list[RollbackResult]:
    changes: list[KnobChange] = []
    found: dict[str, _Found] = {}
    for (target, name), of_knob in ours.items():
        assignments = tuple(
            (Assignment(entry.attribute, entry.original, entry.by_kernel), _present_text(entry, text))
            for entry, text in of_knob
        )
        knob = _known_knob(name)
        changes.append(KnobChange(knob, target, assignments, direction(knob, assignments)))
        found |= {entry.attribute.key: (entry, text) for entry, text in of_knob}
    failed: dict[str, str] = {}
    remarks: dict[str, str] = {}
    gone: set[str] = set()
    for write in order(changes):
        key = write.assignment.attribute.key
        try:
            remarks[key] = _write(found[key][0], write.value, writer)
            failed.pop(key, None)
        except OSError as error:
            if error.errno in _GONE:
                gone.add(key)
            else:
                failed[key] = str(error)
    # A text that was refused may be accepted once all the others are restored.
    for key in list(failed):
        entry, _ = found[key]
        try:
            remarks[key] = _write(entry, entry.original, writer)
            del failed[key]
        except OSError as error:
            failed[key] = str(error)
    results = []
    for key, (entry, text) in found.items():
        if key in gone:
            results.append(RollbackResult(entry, *_unwritten(Ownership.GONE, "")))
        elif key in failed:
            results.append(RollbackResult(entry, Outcome.FAILED, text, failed[key]))
        else:
            results.append(RollbackResult(entry, Outcome.RESTORED, text, remarks[key]))
    return results


def _known_knob(name: str) -> Knob:
    """The knob of that name; one of another version's journal has no order among the others, as a sysctl has none."""
    return Knob(name) if name in Knob.__members__.values() else Knob.SYSCTL


def _present_text(entry: JournalEntry, text: str) -> str:
    """Text to tell the direction by; processes that differ count as having ours."""
    return text if isinstance(entry.attribute, KernelFile) else entry.ours[-1]


def _write(entry: JournalEntry, value: str, writer: Writer) -> str:
    """Write a text, or the closest one that the kernel takes; return a remark in that case."""
    attribute = entry.attribute
    try:
        writer.write(attribute, value, entry.ours, entry.identity)
    except OSError as error:
        if isinstance(attribute, ResourceTasks) and error.errno in _GONE:
            writer.write(attribute, "", entry.ours, entry.identity)
            return "their group is no more, so they are in the root group"
        everything = parent_list(attribute) if isinstance(attribute, KernelFile) and not value else ""
        if error.errno != errno.ENOSPC or not everything:
            raise
        writer.write(attribute, everything, entry.ours, entry.identity)
        return "the kernel takes no empty list while processes are there, so it names all that the parent has"
    return ""
