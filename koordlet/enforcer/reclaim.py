"""Memory that is taken from a cgroup; on cgroup v1 by a limit that is lowered for a moment, which the journal knows."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from api.intents import Knob, Reclaim
from koordlet.enforcer.journal import Journal, NoJournal
from koordlet.enforcer.journal_format import JournalEntry
from koordlet.enforcer.leases import Leases, Tell
from koordlet.enforcer.writer import KernelWriter
from koordlet.host.attribute_formats import Format
from koordlet.host.cgroups.reclaim import LIMIT_FILE, REQUEST_FILE, lowered_limits, takes_by_limit
from koordlet.host.files import HostError
from koordlet.host.knobs.knobs import CgroupGone, Knobs


class JournalUnavailable(Exception):
    """The journal cannot be written, so nothing was changed."""


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """What came of it."""

    amount_bytes: int
    file: str


class Reclaimer:
    """One way for each version."""

    def __init__(self, knobs: Knobs, hands: KernelWriter, journal: Journal | NoJournal, holdings: Leases) -> None:
        self._knobs = knobs
        self._hands = hands
        self._journal = journal
        self._holdings = holdings

    def take(self, wish: Reclaim, tell: Tell) -> Reclaimed:
        """Take it now. Raises Unsupported, CgroupGone, OSError or NotWrittenDown."""
        directory = self._knobs.directory("memory", wish.target)
        if not takes_by_limit(directory):
            taken = self._hands.reclaim(directory, wish.amount_bytes)
            return Reclaimed(taken, str(directory / REQUEST_FILE))
        limits = lowered_limits(directory, wish.amount_bytes)
        taken = self._by_limit(wish, directory, limits, tell) if limits else 0
        return Reclaimed(taken, str(directory / LIMIT_FILE))

    def _by_limit(self, wish: Reclaim, directory: Path, limits: tuple[int, ...], tell: Tell) -> int:
        (part,) = self._knobs.parts(Knob.MEMORY_MAX, wish.target, "max")
        key, identity = part.place.key, self._hands.identity(part.place)
        standing = next(iter(self._hands.read(part.place) or ()), None)
        if identity is None or standing is None:
            raise CgroupGone(wish.target)
        lowered = tuple(map(str, limits))
        held = self._journal.live.get(key)
        if held is not None and held.identity == identity:
            entry = msgspec.structs.replace(held, ours=(*lowered, *held.ours))
        else:
            held = None
            entry = JournalEntry(
                place=part.place,
                identity=identity,
                original=standing,
                ours=lowered,
                target=wish.target,
                knob=Knob.MEMORY_MAX.value,
                strategy=wish.strategy,
                verdict=wish.verdict,
                lease_end=0.0,
            )
        if not self._journal.hold([entry]):
            raise JournalUnavailable
        try:
            taken = self._hands.reclaim_by_limit(directory, limits, Format.LIMIT_BYTES, standing)
        except HostError as error:
            if error.operation == "put back":
                self._holdings.adopt([entry], tell)
            else:
                self._forget(key, held)
            raise
        self._forget(key, held)
        return taken

    def _forget(self, key: str, held: JournalEntry | None) -> None:
        if held is None:
            self._journal.drop([key])
        else:
            self._journal.hold([held])
