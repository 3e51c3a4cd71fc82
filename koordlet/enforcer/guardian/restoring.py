"""Restoring what an agent left, from its journal alone: for `koordlet restore`, a dry run, and the guardian.

It needs no settings but the places of journal and audit, and loads neither the enforcer nor its knobs: the guardian
keeps it in locked memory, because a disk that hangs is one of the reasons to need it.
"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from koordlet.enforcer.audit import AuditFile, Outcome
from koordlet.enforcer.events import EnforcerEvent, EventLog, StepClock, of_entry
from koordlet.enforcer.journal import Journal, lock_state, peek
from koordlet.enforcer.journal_format import JournalEntry, Kind, decode
from koordlet.enforcer.leases import Leases
from koordlet.enforcer.originals.rollback import roll_back
from koordlet.enforcer.originals.set_back import SetAgainTimes, found_set_back, set_again
from koordlet.enforcer.writer import KernelWriter
from koordlet.host.files import HostTree

if TYPE_CHECKING:
    from koordlet.config import EnforcerSettings

WAIT_SECONDS = 3.0
"""Time that another one may hold the journal while it restores."""


@dataclass(frozen=True, slots=True)
class Left:
    """Where an agent leaves what is to be restored, and where that is told."""

    state_dir: str
    audit_file: str = ""
    audit_bytes: int = 16 << 20
    audit_files: int = 4


def left_by(settings: "EnforcerSettings") -> Left:
    """Where an agent of these settings leaves it."""
    return Left(settings.state_dir, settings.audit_file, settings.audit_bytes, settings.audit_files)


def boot_id(tree: HostTree) -> str:
    """The kernel's id of this boot."""
    return (tree.text("/proc/sys/kernel/random/boot_id") or "unknown").strip()


def damage(journal: Journal) -> EnforcerEvent:
    """What is told of a journal that is damaged."""
    found = journal.found
    reason = (
        f"the journal is damaged ({found.damage}): the {len(found.live)} attributes before it are restored, "
        f"{found.lost_bytes} bytes after it are lost; it is kept as {journal.damaged_copy}"
    )
    return EnforcerEvent(
        strategy="", target="", knob="journal", file=str(journal.path), reason=reason, outcome=Outcome.FAILED
    )


def restore_left(
    left: Left, tree: HostTree, *, everything: bool = False, wait_seconds: float = WAIT_SECONDS
) -> list[EnforcerEvent]:
    """Restore every action that the journal names, with `everything` protocol state too; return an event for each.

    Waits for an agent that is about to end. Raises JournalError where one runs, or where the directory cannot be used.
    """
    directory = Path(left.state_dir)
    if not _has_journal(directory):
        return []
    journal = Journal(directory, boot_id(tree), wait_seconds=wait_seconds)
    clock = StepClock()
    clock.start_step(None)
    log = event_log(left, clock)
    try:
        if journal.damaged_copy is not None:
            log.emit(damage(journal))
        leases = Leases(journal, KernelWriter(), log, clock, 0.0)
        leases.adopt(list(journal.live.values()))
        if everything:
            leases.release_all("everything is restored")
        else:
            leases.end_all_actions("it is restored")
        return log.end_step()
    finally:
        journal.close()
        log.close()


def restore_files(left: Left, tree: HostTree, reason: str) -> bool:
    """Restore the files of all actions and leave the journal as it is; return False where one failed.

    This is for an agent that lives and hangs: it finds the originals there and goes on from them. The kernel's files
    come first, the disk with the audit last. Raises OSError where the journal cannot be read.
    """
    entries = peek(Path(left.state_dir), boot_id(tree)).values()
    actions = [entry.without_action() for entry in entries if entry.kind is Kind.ACTION]
    results = roll_back(actions, KernelWriter())
    clock = StepClock()
    clock.start_step(None)
    log = event_log(left, clock)
    try:
        for result in results:
            why = ": ".join(filter(None, (reason, result.reason)))
            log.emit(of_entry(result.entry, result.outcome, why, before=result.before))
    finally:
        log.close()
    return all(result.outcome is not Outcome.FAILED for result in results)


def restore_files_of_dead(left: Left, tree: HostTree, reason: str, wait_seconds: float = WAIT_SECONDS) -> bool:
    """As `restore_files`, with the lock of the journal. Raises JournalHeld where another agent has taken it."""
    directory = Path(left.state_dir)
    if not _has_journal(directory):
        return True
    lock = lock_state(directory, wait_seconds)
    try:
        return restore_files(left, tree, reason)
    finally:
        os.close(lock)


@dataclass(slots=True)
class Keeping:
    """What a guardian knows of its earlier looks at actions that wait for a successor."""

    times: SetAgainTimes = field(default_factory=SetAgainTimes)
    given_up: set[str] = field(default_factory=set)
    """Keys of attributes that another program insists on: the successor may set them again."""


def keep_files(left: Left, tree: HostTree, keeping: Keeping) -> list[EnforcerEvent]:
    """Set actions again that systemd set back, while they wait for a successor; nothing once that has come or gone.

    Returns the events and writes none of them: a disk may hang. Raises JournalError where a successor holds the
    journal, and OSError.
    """
    directory = Path(left.state_dir)
    if not _has_journal(directory):
        return []
    lock = lock_state(directory, 0.0)
    try:
        found = decode((directory / "journal").read_bytes())
        if found.handover_until is None or found.boot != boot_id(tree):
            return []
        actions = [one for one in found.live.values() if one.kind is Kind.ACTION]
        return _keep([one for one in actions if one.attribute.key not in keeping.given_up], keeping)
    finally:
        os.close(lock)


def _keep(actions: list[JournalEntry], keeping: Keeping) -> list[EnforcerEvent]:
    writer, now, events = KernelWriter(), time.monotonic(), []
    for entry, text in found_set_back(actions, writer):
        key = entry.attribute.key
        if contested := keeping.times.contested([(entry, text)], now):
            keeping.given_up.add(key)
            events += [of_entry(entry, one.outcome, one.reason, before=text) for one in contested]
            continue
        events.append(set_again(entry, text, writer))
        if events[-1].outcome is Outcome.SET_AGAIN:
            keeping.times.note(key, now)
    return events


def _has_journal(directory: Path) -> bool:
    """Return whether there is a journal. Raises OSError where that cannot be told: it may name what is changed."""
    try:
        (directory / "journal").stat()
    except FileNotFoundError:
        return False
    return True


def event_log(left: Left, clock: StepClock) -> EventLog:
    """The log of events that writes to the audit of an agent that left."""
    audit = AuditFile(Path(left.audit_file), left.audit_bytes, left.audit_files) if left.audit_file else None
    return EventLog(audit, clock, dry_run=False)
