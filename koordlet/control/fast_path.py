"""The fast path: a thread that sleeps on the kernel's tripwire and passes trips on, beside the tick."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from api.frame import CgroupInfo
from api.qos import QoSClass
from koordlet.host.scheduling import come_promptly
from koordlet.response.observation import Observation
from koordlet.response.settings import ResponseSettings
from probes.tripwire import Trip, Tripwire

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.2
_MOST_VICTIMS, _MOST_CULPRITS = 1024, 4096
"""Sizes of the maps in probes/bpf/tripwire.bpf.h."""
_MOST_OF_AN_OWNER = 64
"""Entries of each map for the first directory that belongs to another user, with all below it: making cgroups there
costs no one else an entry."""


def _shared_out(cgroups: Sequence[CgroupInfo], boundary_of: Callable[[str], str], most: int) -> list[int]:
    """Return the ids of `most` cgroups, oldest first, with no more than the share of an owner from any directory."""
    taken: Counter[str] = Counter()
    kept: list[int] = []
    for info in sorted(cgroups, key=lambda one: one.id):
        boundary = boundary_of(info.path)
        if len(kept) < most and taken[boundary] < _MOST_OF_AN_OWNER:
            taken[boundary] += 1
            kept.append(info.id)
    return kept


class FastPath:
    """Watches latency-sensitive cgroups in the kernel and passes their trips on."""

    def __init__(self, tripwire: Tripwire, on_trip: Callable[[Trip], None], settings: ResponseSettings) -> None:
        self._tripwire = tripwire
        self._on_trip = on_trip
        window_ns = int(settings.fast_path_window_seconds * 1e9)
        self._limits = (int(window_ns * settings.fast_path_budget_ratio), window_ns)
        self._limited = frozenset(settings.limited_classes)
        self._watched: tuple[CgroupInfo, ...] = ()
        self._stop = threading.Event()
        self.unwatched = 0
        """Cgroups beyond the size of the kernel's maps, or the share of their owner: they are protected from tick to
        tick."""
        self.failures = 0
        """Times that the tripwire could not be read or a trip not be handled."""
        self._thread = threading.Thread(target=self._listen, name="fast-path", daemon=True)
        self._thread.start()

    def watch(self, observation: Observation) -> None:
        """Set the victims (latency-sensitive cgroups) and the culprits (cgroups that may be acted upon for them)."""
        if observation.cgroups == self._watched:
            return
        victims = [info for info in observation.cgroups if QoSClass(info.qos).latency_sensitive]
        others = (info for info in observation.cgroups if info.path != "/")
        culprits = [info for info in others if observation.classes_within(info.path) <= self._limited]
        kept = _shared_out(victims, observation.boundary_of, _MOST_VICTIMS)
        actionable = _shared_out(culprits, observation.boundary_of, _MOST_CULPRITS)
        self.unwatched = len(victims) - len(kept) + len(culprits) - len(actionable)
        self._tripwire.watch(dict.fromkeys(kept, self._limits), set(actionable))
        self._watched = observation.cgroups

    def follow(self, settings: ResponseSettings) -> None:
        """Follow other classes that may be limited, from the next tick on."""
        limited = frozenset(settings.limited_classes)
        if limited != self._limited:
            self._limited, self._watched = limited, ()

    def close(self) -> None:
        """Stop the thread; the probe closes the tripwire. Idempotent."""
        self._stop.set()
        self._thread.join()

    def _listen(self) -> None:
        come_promptly()
        while not self._stop.is_set():
            try:
                for trip in self._tripwire.wait(_POLL_SECONDS):
                    self._on_trip(trip)
            except Exception:  # noqa: BLE001 - the slow path goes on without the fast one; counted, logged once
                self.failures += 1
                if self.failures == 1:
                    _log.exception("the fast path failed; trying again")
                time.sleep(_POLL_SECONDS)
