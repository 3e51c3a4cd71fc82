"""CLOSIDs and RMIDs: few, reused, and an RMID may rest in limbo before reuse."""

import errno
from collections.abc import Callable

from tests.resctrl_fs.command import CommandError


class ClosidPool:
    """Identifiers 0..count-1; 0 belongs to the default group; the lowest free one is taken."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = set(range(1, count))

    def take(self) -> int:
        if not self._free:
            raise CommandError(errno.ENOSPC, "Out of CLOSIDs")
        closid = min(self._free)
        self._free.remove(closid)
        return closid

    def give_back(self, closid: int) -> None:
        self._free.add(closid)


class RmidPool:
    """Identifiers 0..count-1, reused oldest first.

    A freed RMID whose cache lines are still around (`is_dirty`) rests in limbo. With nothing free, a mkdir
    fails with EBUSY while any rests there, and with ENOSPC otherwise.
    """

    def __init__(self, count: int, is_dirty: Callable[[int], bool]) -> None:
        self._is_dirty = is_dirty
        self._free = list(range(1, count))
        self._limbo: list[int] = []

    def take(self) -> int:
        self._leave_limbo()
        if not self._free:
            raise CommandError(errno.EBUSY if self._limbo else errno.ENOSPC, "Out of RMIDs")
        return self._free.pop(0)

    def give_back(self, rmid: int) -> None:
        (self._limbo if self._is_dirty(rmid) else self._free).append(rmid)

    def _leave_limbo(self) -> None:
        clean = [rmid for rmid in self._limbo if not self._is_dirty(rmid)]
        self._free.extend(clean)
        self._limbo = [rmid for rmid in self._limbo if rmid not in clean]
