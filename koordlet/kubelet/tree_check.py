"""Which cgroups of running containers have ended. The tree tells at once what an overloaded runtime tells late.

It is looked at by a thread of its own, because the thread that asks runtime and kubelet waits for their answers.
"""

import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from api.plugin import Unsupported
from koordlet.host.cgroups.tree_events import TreeEvents

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Longest time between two looks: on a busy node ticks and the runtime's events, which ask for one, come late."""
CALM_LOOK_SECONDS = 5.0
"""The same while the kernel tells of what comes and goes, and nothing did for as long."""
SETTLE_SECONDS = 0.05
"""Time that a change waits for others: the cgroups of a pod go together."""
ENDING_SECONDS = 3.0
"""Time after an end in which cgroups without a process are looked for: a drain ends a hundred containers together."""


class TreeCheck:
    """What was seen in the tree; for one thread at a time."""

    def __init__(self, mount_of: Callable[[], Path | None]) -> None:
        """`mount_of` finds where the hierarchy is mounted, when it is asked first; None where none is."""
        self._mount_of = mount_of
        self._mount: Path | None = None
        self._present: frozenset[str] = frozenset()
        self._populated: set[str] = set()
        """Paths in which processes were seen."""
        self._ended_seconds = float("-inf")

    def ended(self, running: Collection[str], siblings: Mapping[str, str], known: Collection[str]) -> frozenset[str]:
        """Return which of the paths of running containers are gone or empty; `known` was returned before.

        A path must have been seen, or its sibling in `siblings`, which the same runtime made: a container that lives
        for a moment is never seen. A virtual machine's containers have no cgroups here, or empty ones, and end by the
        runtime's word alone.

        The runtime removes a cgroup some time after its last process: for 110 pods deleted together up to 2.7 s. One
        that had processes and has none counts too, but is looked for only while others end: 250 files take 3 ms.
        """
        present = frozenset(filter(self.is_there, running))
        seen = self._present.union(present, known)
        gone = frozenset(path for path in running if path not in present and seen & {path, siblings.get(path, "")})
        self._present = present
        self._populated.intersection_update(present)
        self._populated.update(path for path in present - self._populated if self._is_populated(path))
        now_seconds = time.monotonic()
        if not gone.issubset(known):
            self._ended_seconds = now_seconds
        others_end = now_seconds - self._ended_seconds < ENDING_SECONDS
        asked = self._populated if others_end else self._populated.intersection(known)
        return gone.union(path for path in asked if not self._is_populated(path))

    def is_there(self, path: str) -> bool:
        """Return whether there is a cgroup."""
        if self._mount is None:
            self._mount = self._mount_of()
        return self._mount is not None and os.path.isdir(f"{self._mount}{path}")

    def _is_populated(self, path: str) -> bool:
        """Return whether a process lives in a cgroup or below it. What cannot be read counts as populated."""
        directory = f"{self._mount}{path}"
        try:
            with Path(f"{directory}/cgroup.procs").open("rb") as processes:
                # Kernfs counts a link for each directory in it: a container may have cgroups of its own.
                return bool(processes.read(1)) or os.stat(directory).st_nlink > 2
        except OSError as error:
            return error.errno not in (errno.ENOENT, errno.ENODEV)  # ENODEV: removed while it was open


class TreeThread:
    """Thread that calls `look` soon after each `poke`, where a pod or container came or went, and each second.

    Where nothing comes or goes and the kernel would tell, it looks each five seconds.
    """

    def __init__(self, look: Callable[[], None], changed: Callable[[], None]) -> None:
        """`changed` is called where a directory came or went below the one that is followed."""
        self._look = look
        self._changed = changed
        self._place: tuple[Callable[[], Path | None], str] | None = None
        self._mount: Path | None = None
        self._events: TreeEvents | None = None
        self._refused = False
        self._poked = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pod-tree", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def poke(self) -> None:
        """Look soon. Never waits."""
        self._poked.set()

    def follow(self, mount_of: Callable[[], Path | None], path: str) -> None:
        """Have the kernel tell of what comes and goes below a path of the hierarchy. Never waits."""
        self._place = (mount_of, path)

    def close(self, timeout_seconds: float) -> None:
        """Stop."""
        self._stopping.set()
        self._poked.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
        if self._events is not None:
            self._events.close(timeout_seconds)

    def _run(self) -> None:
        poked_seconds = time.monotonic()
        while True:
            is_told = self._follow()
            is_calm = is_told and time.monotonic() - poked_seconds > CALM_LOOK_SECONDS
            if self._poked.wait(CALM_LOOK_SECONDS if is_calm else LOOK_SECONDS):
                poked_seconds = time.monotonic()
            if self._stopping.wait(SETTLE_SECONDS):
                return
            self._poked.clear()
            self._look()

    def _follow(self) -> bool:
        """Follow the directory once it is there, and again when it was made anew; return whether all is told of."""
        if self._place is None or self._refused:
            return False
        mount_of, path = self._place
        self._mount = self._mount or mount_of()
        if self._mount is None:
            return False
        try:
            self._events = self._events or TreeEvents(self._changed)
        except Unsupported as reason:
            self._refused = True
            _log.info("containers that live for a moment may be missed: %s; %s", reason.reason, reason.remedy)
            return False
        return self._events.follow(Path(f"{self._mount}{path}")) and not self._events.is_partial
