"""What is usual in the fleet, of the workloads on this node: profiles are read when a workload comes, and hourly."""

import logging
import threading
import time
from random import Random

from api.crds import WORKLOAD_PROFILE
from api.kube.workload import workload_named
from cluster import Backoff, Client, ClusterError, Key, custom
from detector.baselines.values import CellRecord
from koordlet.identity.pods import PodTableOf
from koordlet.kube.fleet_models import FleetModels
from koordlet.kube.usual_values import cells_of

_log = logging.getLogger(__name__)

_PROFILES = custom(WORKLOAD_PROFILE)
LOOK_SECONDS = 1.0
AGAIN_SECONDS = 3600.0
"""Age from which a profile is read again; so long, too, for a workload without one."""
MAX_WORKLOADS = 512
"""On one node; those beyond are judged by what the node itself learns."""
_BACKOFF = Backoff(initial_seconds=1.0, maximum_seconds=60.0, jitter=1.0)


class FleetBaselines:
    """Reader of profiles in a thread of its own; the tick takes what came."""

    def __init__(
        self,
        client: Client,
        pods: PodTableOf,
        *,
        models: FleetModels | None = None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """`models` are told of every profile that is read."""
        self.failures = 0
        """Reads that did not succeed."""
        self._client = client
        self._pods = pods
        self._models = models
        self._look_seconds = look_seconds
        self._random = Random()
        self._asked: dict[str, float] = {}
        """Monotonic time of the last read by workload."""
        self._lock = threading.Lock()
        self._found: list[CellRecord] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fleet-baselines", daemon=True)

    def start(self) -> None:
        """Start to read."""
        self._thread.start()

    def close(self, timeout_seconds: float = 5.0) -> None:
        """End the thread; idempotent."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def take(self) -> list[CellRecord]:
        """Return the cells that came since the last call; never waits."""
        with self._lock:
            found, self._found = self._found, []
        return found

    def _run(self) -> None:
        in_a_row = 0
        while True:
            delay_seconds = _BACKOFF.delay_seconds(in_a_row - 1, self._random) if in_a_row else self._look_seconds
            if self._ending.wait(delay_seconds):
                return
            in_a_row = in_a_row + 1 if not self._look() else 0

    def _look(self) -> bool:
        """Read what is due; return whether the server answered."""
        running = {pod.workload for pod in self._pods().pods if pod.active}
        self._asked = {name: when for name, when in self._asked.items() if name in running}
        if self._models is not None:
            self._models.keep(running)
        now_seconds = time.monotonic()
        for name in sorted(running):
            asked = self._asked.get(name)
            due = asked is None or now_seconds - asked >= AGAIN_SECONDS
            if not due or (asked is None and len(self._asked) >= MAX_WORKLOADS) or self._ending.is_set():
                continue
            workload = workload_named(name)
            # A workload that came together with many others is read again at a time of its own.
            self._asked[name] = now_seconds - (self._random.uniform(0, AGAIN_SECONDS / 2) if asked is None else 0.0)
            if workload is None:
                continue
            try:
                profile = self._client.find(_PROFILES, Key(workload.namespace, workload.profile_name))
            except ClusterError as error:
                if not self.failures:
                    _log.warning("profiles of workloads cannot be read, trying again: %s", error)
                self.failures += 1
                self._asked.pop(name, None)
                return False
            if self._models is not None:
                self._models.heard(name, profile)
            if profile is not None:
                cells = cells_of(name, profile.status.usual_values, time.time())
                with self._lock:
                    self._found = [*self._found, *cells][-MAX_WORKLOADS * 48 :]
        return True
