"""Which cgroups of running containers have gone. The tree tells at once what an overloaded runtime tells late.

It is looked at by a thread of its own, because the thread that asks runtime and kubelet waits for their answers.
"""

import os
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

LOOK_SECONDS = 1.0
"""Longest time between two looks: on a busy node ticks and the runtime's events, which ask for one, come late."""
SETTLE_SECONDS = 0.05
"""Time that a change waits for others: the cgroups of a pod go together."""


class TreeCheck:
    """What was seen in the tree; for one thread at a time."""

    def __init__(self, mount_of: Callable[[], Path | None]) -> None:
        """`mount_of` finds where the hierarchy is mounted, when it is asked first; None where none is."""
        self._mount_of = mount_of
        self._mount: Path | None = None
        self._present: frozenset[str] = frozenset()

    def gone(self, running: Collection[str], siblings: Mapping[str, str], known: Collection[str]) -> frozenset[str]:
        """Return which of the paths of running containers are not there any more; `known` was returned before.

        A path must have been seen, or its sibling in `siblings`, which the same runtime made: a container that lives
        for a moment is never seen. A virtual machine's containers have no cgroups here, and end by the runtime's word
        alone.
        """
        present = frozenset(filter(self.is_there, running))
        seen = self._present.union(present, known)
        gone = frozenset(path for path in running if path not in present and seen & {path, siblings.get(path, "")})
        self._present = present
        return gone

    def is_there(self, path: str) -> bool:
        """Return whether there is a cgroup."""
        if self._mount is None:
            self._mount = self._mount_of()
        return self._mount is not None and os.path.isdir(f"{self._mount}{path}")


class TreeThread:
    """Thread that calls `look` soon after each `poke`, and each second."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._poked = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pod-tree", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def poke(self) -> None:
        """Look soon. Never waits."""
        self._poked.set()

    def close(self, timeout_seconds: float) -> None:
        """Stop."""
        self._stopping.set()
        self._poked.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while True:
            self._poked.wait(LOOK_SECONDS)
            if self._stopping.wait(SETTLE_SECONDS):
                return
            self._poked.clear()
            self._look()
