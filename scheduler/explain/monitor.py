"""Attempts that take too long: pods that are tried, held at Permit or bound for longer than a time-out."""

import logging
import threading
from collections.abc import Callable, Iterable

from scheduler.cluster_state.podinfo import PodInfo
from scheduler.podqueue import QueuedPod

log = logging.getLogger(__name__)

PERIOD_SECONDS = 10.0
"""Time between two looks at the attempts that are not over."""
MAX_LINES = 10
"""Pods named in the log at one look."""


class AttemptMonitor:
    """Finder of slow attempts. A thread of its own looks, so that an attempt that never ends is found too.

    `in_flight` lists the pods whose attempt is not over, `timeout_seconds` is the time that one may take (0 is off),
    and `count` is called with the scheduler's name for each slow attempt at every look, and once more at its end.
    """

    def __init__(
        self,
        in_flight: Callable[[], Iterable[QueuedPod]],
        *,
        timeout_seconds: Callable[[], float],
        count: Callable[[str], None],
    ) -> None:
        self._in_flight = in_flight
        self._timeout_seconds = timeout_seconds
        self._count = count
        self._named: dict[str, int] = {}
        """Number of the attempt for which the log names a pod, by UID."""

    def start(self, stopping: threading.Event, clock: Callable[[], float]) -> None:
        """Look in the background until `stopping`; `clock` is that of the attempts."""
        threading.Thread(target=self._run, args=(stopping, clock), name="attempts", daemon=True).start()

    def look(self, now: float) -> None:
        """Count the attempts that take longer than the time-out, and name each once in the log."""
        timeout = self._timeout_seconds()
        late = [pod for pod in self._in_flight() if now - pod.began_at > timeout] if timeout > 0 else []
        fresh = [pod for pod in late if self._named.get(pod.info.uid) != pod.attempts]
        self._named = {pod.info.uid: pod.attempts for pod in late}
        for pod in late:
            self._count(pod.info.scheduler_name)
        for pod in fresh[:MAX_LINES]:
            log.warning(
                "scheduling %s (%s) has taken %.0f s, longer than the time-out of %g s",
                *(pod.info.key, pod.info.uid, now - pod.began_at, timeout),
            )
        if len(fresh) > MAX_LINES:
            log.warning("so has scheduling %d more pods", len(fresh) - MAX_LINES)

    def ended(self, info: PodInfo, seconds: float) -> None:
        """Count an attempt that is over, if it took longer than the time-out."""
        timeout = self._timeout_seconds()
        if 0 < timeout < seconds:
            self._count(info.scheduler_name)
            if info.uid not in self._named:
                log.warning(
                    "scheduling %s (%s) took %.0f s, longer than the time-out of %g s",
                    *(info.key, info.uid, seconds, timeout),
                )

    def _run(self, stopping: threading.Event, clock: Callable[[], float]) -> None:
        while not stopping.wait(PERIOD_SECONDS):
            try:
                self.look(clock())
            except Exception:
                log.exception("slow attempts could not be looked for")
