"""Memory reclaim; on cgroup v1 by writing a limit that usage cannot fit, with an entry in the journal."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from api.intents import Knob, Reclaim
from koordlet.enforcer.journal import Journal, NoJournal
from koordlet.enforcer.journal_format import JournalEntry
from koordlet.enforcer.leases import Leases
from koordlet.enforcer.writer import Writer
from koordlet.host.cgroups.reclaim import (
    LIMIT_FILE,
    REQUEST_FILE,
    SET_BACK,
    UNREACHABLE_LIMIT,
    reclaimable_by_limit,
    reclaims_by_limit,
)
from koordlet.host.files import HostError
from koordlet.host.knobs.knobs import CgroupGone, Knobs


class JournalUnavailable(Exception):
    """The journal cannot be written, so nothing was changed."""


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """Bytes that were freed, and the file that was written."""

    amount_bytes: int
    file: str


class Reclaimer:
    """Reclaims by memory.reclaim (cgroup v2) or by the limit (v1)."""

    def __init__(self, knobs: Knobs, writer: Writer, journal: Journal | NoJournal, leases: Leases) -> None:
        self._knobs = knobs
        self._writer = writer
        self._journal = journal
        self._leases = leases

    def reclaim(self, intent: Reclaim) -> Reclaimed:
        """Reclaim now. Raises Unsupported, CgroupGone, OSError or JournalUnavailable."""
        directory = self._knobs.directory("memory", intent.target)
        if not reclaims_by_limit(directory):
            freed = self._writer.reclaim(directory, intent.amount_bytes)
            return Reclaimed(freed, str(directory / REQUEST_FILE))
        amount = reclaimable_by_limit(directory, intent.amount_bytes)
        freed = self._by_limit(intent, directory, amount) if amount else 0
        return Reclaimed(freed, str(directory / LIMIT_FILE))

    def _by_limit(self, intent: Reclaim, directory: Path, amount_bytes: int) -> int:
        (assignment,) = self._knobs.assignments(Knob.MEMORY_MAX, intent.target, "max")
        attribute = assignment.attribute
        identity = self._writer.identity(attribute)
        present_limit = next(iter(self._writer.read(attribute) or ()), None)
        if identity is None or present_limit is None:
            raise CgroupGone(intent.target)
        known = self._journal.live.get(attribute.key)
        if known is not None and known.identity == identity:
            entry = msgspec.structs.replace(known, ours=(UNREACHABLE_LIMIT, *known.ours))
        else:
            known = None
            entry = JournalEntry(
                attribute=attribute,
                identity=identity,
                original=present_limit,
                ours=(UNREACHABLE_LIMIT,),
                target=intent.target,
                knob=Knob.MEMORY_MAX.value,
                strategy=intent.strategy,
                verdict=intent.verdict,
                lease_end=0.0,
            )
        if not self._journal.hold([entry]):
            raise JournalUnavailable
        try:
            freed = self._writer.reclaim_by_limit(directory, amount_bytes, present_limit)
        except OSError as error:
            if isinstance(error, HostError) and error.operation == SET_BACK:
                self._leases.restore([entry])
            else:
                self._forget(attribute.key, known)
            raise
        self._forget(attribute.key, known)
        return freed

    def _forget(self, key: str, known: JournalEntry | None) -> None:
        if known is None:
            self._journal.drop([key])
        else:
            self._journal.hold([known])
