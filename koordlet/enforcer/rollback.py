"""Puts places back to what they were, if what stands there is still ours; used on start, on exit and in between."""

import errno
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from api.intents import Knob
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.journal_format import JournalEntry
from koordlet.enforcer.write_order import KnobChange, order
from koordlet.enforcer.writer import KernelWriter
from koordlet.host.attributes import KernelFile, ResourceTasks, parents_list
from koordlet.host.knobs.direction import direction
from koordlet.host.knobs.knobs import Assignment

_GONE = (errno.ENOENT, errno.ENODEV)


class Ownership(Enum):
    """What is found at a place that we changed."""

    OURS = "ours"
    PARTLY = "partly"
    """Of several processes some hold our text and some the original."""
    ORIGINAL = "original"
    FOREIGN = "foreign"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Returned:
    """What became of one place; `before` is what stood there. FAILED ones are still ours."""

    entry: JournalEntry
    outcome: Outcome
    before: str
    reason: str


def look(entry: JournalEntry, hands: KernelWriter) -> tuple[Ownership, str]:
    """What stands at an entry's place, and its text. Raises OSError where it cannot be read."""
    if hands.identity(entry.place) != entry.identity:
        return Ownership.GONE, ""
    texts = hands.read(entry.place)
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


def put_back(entries: Iterable[JournalEntry], hands: KernelWriter) -> list[Returned]:
    """Look at each place and put back what is ours, in the order that the kernel accepts."""
    done: list[Returned] = []
    ours: dict[tuple[str, str], list[tuple[JournalEntry, str]]] = defaultdict(list)
    for entry in entries:
        try:
            standing, text = look(entry, hands)
        except OSError as error:
            done.append(Returned(entry, Outcome.FAILED, "", str(error)))
            continue
        if standing in (Ownership.OURS, Ownership.PARTLY):
            ours[entry.target, entry.knob].append((entry, text))
        else:
            done.append(Returned(entry, *_nothing_to_do(standing, text)))
    done += _write_back(ours, hands)
    return done


def _nothing_to_do(standing: Ownership, text: str) -> tuple[Outcome, str, str]:
    if standing == Ownership.GONE:
        return Outcome.GONE, "", "the cgroup is no more"
    if standing == Ownership.ORIGINAL:
        return Outcome.UNCHANGED, text, "it was back already"
    return Outcome.FOREIGN_WRITE, text, "somebody else wrote there meanwhile"


def _write_back(ours: dict[tuple[str, str], list[tuple[JournalEntry, str]]], hands: KernelWriter) -> list[Returned]:
    changes: list[KnobChange] = []
    entries: dict[str, tuple[JournalEntry, str]] = {}
    for (target, knob), found in ours.items():
        parts = tuple(
            (Assignment(entry.place, entry.original, entry.by_kernel), _single(entry, text)) for entry, text in found
        )
        kind = _known(knob)
        changes.append(KnobChange(kind, target, parts, direction(kind, parts)))
        entries |= {entry.place.key: (entry, text) for entry, text in found}
    failed: dict[str, str] = {}
    remarks: dict[str, str] = {}
    gone: set[str] = set()
    for write in order(changes):
        entry, _ = entries[write.part.place.key]
        try:
            remarks[entry.place.key] = _write(entry, write.value, hands)
            failed.pop(entry.place.key, None)
        except OSError as error:
            if error.errno in _GONE:
                gone.add(entry.place.key)
            else:
                failed[entry.place.key] = str(error)
    # What was refused may be accepted once all the others are back.
    for key in list(failed):
        entry, _ = entries[key]
        try:
            remarks[key] = _write(entry, entry.original, hands)
            del failed[key]
        except OSError as error:
            failed[key] = str(error)
    done = []
    for key, (entry, text) in entries.items():
        if key in gone:
            done.append(Returned(entry, *_nothing_to_do(Ownership.GONE, "")))
        elif key in failed:
            done.append(Returned(entry, Outcome.FAILED, text, failed[key]))
        else:
            done.append(Returned(entry, Outcome.RESTORED, text, remarks[key]))
    return done


def _known(knob: str) -> Knob:
    """A journal of another version may name a knob that is none here: it has no order among the others."""
    return Knob(knob) if knob in Knob.__members__.values() else Knob.SYSCTL


def _single(entry: JournalEntry, text: str) -> str:
    """The text to judge the direction by; processes that differ count as having ours."""
    return text if isinstance(entry.place, KernelFile) else entry.ours[-1]


def _write(entry: JournalEntry, value: str, hands: KernelWriter) -> str:
    """Write it back, or what comes closest to it; returns a remark on the latter."""
    place = entry.place
    try:
        hands.write(place, value, entry.ours, entry.identity)
    except OSError as error:
        if isinstance(place, ResourceTasks) and error.errno in _GONE:
            hands.write(place, "", entry.ours, entry.identity)
            return "their group is no more, so they are in the root group"
        everything = parents_list(place) if isinstance(place, KernelFile) and not value else ""
        if error.errno != errno.ENOSPC or not everything:
            raise
        hands.write(place, everything, entry.ours, entry.identity)
        return "the kernel takes no empty list while processes are there, so it names all that the parent has"
    return ""
