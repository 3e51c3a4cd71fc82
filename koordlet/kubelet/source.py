"""The source of pods: a thread that keeps the newest `PodTable` and the kubelet's configuration.

An event of the runtime tells a pod with its containers, which is in the table at once: a container may live for a
second. The runtime is asked after events too, and whenever the tick finds containers that came or went; the kubelet, or
the API server, only where the runtime's sandboxes changed, and at an interval. What does not answer is asked again with
back-off, and what it told before stays: an agent that knew the node a minute ago must not forget it.

What ended is told by the tree as well, in a thread that never waits: a runtime with a hundred containers to end
answers seconds late.
"""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

from api.plugin import Unsupported
from koordlet.host.files import HostTree
from koordlet.identity.kubelet_policy import UNKNOWN_KUBELET_POLICY, KubeletPolicy
from koordlet.identity.pods import NO_PODS, ContainerRole, PodTable
from koordlet.kubelet.assembly import Assembly, Sources, assemble, departed
from koordlet.kubelet.cgroup_paths import kubepods_path
from koordlet.kubelet.config_reader import ConfigReader, mount_of
from koordlet.kubelet.configuration import ConfigurationError, KubeletConfig, of_configz
from koordlet.kubelet.http_client import KubeletClient
from koordlet.kubelet.pod_documents import NodePod, NotAPodList, pods_of_list
from koordlet.kubelet.retries import Complaints, Retry
from koordlet.kubelet.runtime_view import RuntimeEvent, RuntimeView, follow
from koordlet.kubelet.settings import KubeletSettings
from koordlet.kubelet.tree_check import TreeCheck, TreeThread

if TYPE_CHECKING:
    from koordlet.kubelet.cri import EventFollower, RuntimeClient
    from koordlet.kubelet.pod_resources import PodResourcesClient
    from koordlet.kubelet.watch import ApiServer, PodWatch

_log = logging.getLogger(__name__)

SETTLE_SECONDS = 0.1
"""Time that a change waits for others, which come together: a pod's sandbox, its init containers, its containers."""
PODS_SPACING_SECONDS = 0.5
"""Least time between two reads of all pods."""
TERMINATING_SECONDS = 2.0
"""Time after which pods are read again while one is terminating: its end changes nothing at the runtime."""
PLACES_SECONDS = 0.3
"""Longest time for places before pods are looked at again: of a hundred new containers a busy runtime takes seconds."""
MAX_HEARD = 1024
"""Events kept while the runtime is asked; a later list has what they told."""
CONFIG_SECONDS = 300.0
"""Time between two reads of the kubelet's configuration; it is read again too when the kubelet comes back."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """State of the source at one moment, for metrics and the doctor."""

    pods_from: str = ""
    """`kubelet` or `apiserver`; empty before either answered."""
    age_seconds: float = float("inf")
    """Time since the newest answer about pods."""
    unplaced: int = 0
    """Running containers without a cgroup inside that of their pod."""
    unknown: int = 0
    """Containers of the runtime that belong to no known pod."""
    problems: tuple[str, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    """Requests since the start by the one asked (`kubelet`, `apiserver`, `runtime`, `pod_resources`), and `relists`."""


class PodSource:
    """Thread that publishes a new table for each change. `table`, `config` and `policy` never wait."""

    def __init__(
        self,
        settings: KubeletSettings,
        node: str,
        tree: HostTree,
        apiserver: "ApiServer | None" = None,
        *,
        random: Random | None = None,
    ) -> None:
        """`apiserver` is where pods are watched while the kubelet cannot be asked; None where none is configured."""
        self._settings = settings
        self._tree = tree
        self._apiserver = apiserver
        self._random = random or Random()
        addresses = apiserver.kubelet_endpoints if apiserver else tuple
        self._kubelet = KubeletClient(settings, node, addresses)
        self._table = NO_PODS
        self._sources = Sources()
        self._published: Sources | None = None
        self._hearing = threading.Lock()
        """Held while `_sources` is replaced: by the thread that asks, and by the one that follows events."""
        self._heard_meanwhile: deque[RuntimeEvent] = deque(maxlen=MAX_HEARD)
        """Events since the runtime was last asked."""
        self._tree_check = TreeCheck(lambda: mount_of(tree))
        self._tree_thread = TreeThread(self._look_at_tree, self.poke)
        self._vanished: Mapping[str, str] = {}
        """Id of the container, by path of the cgroup that has gone."""
        self._publishing = threading.Condition()
        self._status = SourceStatus()
        self._answered_seconds = float("-inf")
        self._complaints = Complaints(_log)
        self._config_reader = ConfigReader(tree, settings.root_directory, self._complaints)
        self._counters: Counter[str] = Counter()
        self._retries = {name: Retry(self._random) for name in ("kubelet", "runtime", "pod resources")}
        self._runtime: RuntimeClient | None = None
        self._follower: EventFollower | None = None
        self._resources: PodResourcesClient | None = None
        self._watch: PodWatch | None = None
        self._sandboxes: frozenset[tuple[str, bool]] = frozenset()
        self._pods_due_seconds = float("-inf")
        self._pods_read_seconds = float("-inf")
        self._config_due_seconds = float("-inf")
        self._is_pod_awaited = False
        self._is_stale = False
        self._list_problems: tuple[str, ...] = ()
        self._changed = threading.Condition()
        self._poked = True
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pod-source", daemon=True)

    def table(self) -> PodTable:
        """Return the newest table."""
        return self._table

    def config(self) -> KubeletConfig | None:
        """Return the kubelet's configuration; None before it is known."""
        return self._sources.config

    def policy(self) -> KubeletPolicy:
        """Return what the kubelet manages by itself; everything that it might while its configuration is not known."""
        config = self._sources.config
        exclusive = (pod.cgroup_uid for pod in self._table.pods if any(each.assigned.cpus for each in pod.containers))
        if config is None or not config.is_told:
            return replace(UNKNOWN_KUBELET_POLICY, exclusive_pods=frozenset(exclusive))
        return KubeletPolicy(
            cpu_manager_static=config.static_cpus,
            memory_manager_static=config.static_memory,
            memory_qos=config.memory_qos,
            qos_reserved=bool(config.qos_reserved),
            exclusive_pods=frozenset(exclusive),
        )

    def status(self) -> SourceStatus:
        """Return the state with its counters."""
        requests = {
            "kubelet": self._kubelet.requests,
            "apiserver": self._apiserver.requests if self._apiserver else 0,
            "runtime": self._runtime.requests if self._runtime else 0,
            "pod_resources": self._resources.requests if self._resources else 0,
        }
        age_seconds = time.monotonic() - self._answered_seconds
        if self._watch is not None and self._status.pods_from == "apiserver":
            age_seconds = self._watch.silent_seconds
        return replace(self._status, age_seconds=age_seconds, counters=self._counters | Counter(requests))

    def poke(self) -> None:
        """Ask the runtime soon: something changed. Never waits."""
        self._tree_thread.poke()
        with self._changed:
            self._poked = True
            self._changed.notify_all()

    def await_pod(self, uid: str, timeout_seconds: float) -> PodTable:
        """Have the pods read soon because one starts; return the newest table once it has it, or after the timeout."""
        with self._publishing:
            if self._table.of_uid(uid) is None:
                self._is_pod_awaited = True
                self.poke()
                self._publishing.wait_for(lambda: self._table.of_uid(uid) is not None, timeout_seconds)
        return self._table

    def start(self) -> None:
        """Start the threads."""
        self._thread.start()
        self._tree_thread.start()

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Stop and close all connections; the table stays."""
        self._stopping.set()
        self.poke()
        self._tree_thread.close(timeout_seconds)
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
        if self._follower is not None:
            self._follower.stop(timeout_seconds)
        if self._watch is not None:
            self._watch.close(timeout_seconds)
        for client in (self._runtime, self._resources, self._kubelet, self._apiserver):
            if client is not None:
                client.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            with self._changed:
                wait_seconds = max(self._pods_due_seconds - time.monotonic(), 0.0)
                self._changed.wait_for(lambda: self._poked, wait_seconds)
            self._stopping.wait(SETTLE_SECONDS)
            if self._stopping.is_set():
                return
            with self._changed:
                self._poked = False
            try:
                self.refresh(time.monotonic())
            except Exception as error:  # noqa: BLE001
                # A table that silently stops being kept is worse than any error.
                self._counters["errors"] += 1
                self._complaints.note("pod source", f"an unexpected error: {error!r:.200}")
                _log.debug("pod source", exc_info=True)
                self._pods_due_seconds = time.monotonic() + self._settings.relist_seconds

    def refresh(self, now_seconds: float) -> None:
        """Ask the runtime, and the others as far as they are due; publish what changed. For the thread and tests."""
        self._publish()
        if now_seconds >= self._config_due_seconds:
            self._read_config(now_seconds)
        self._ask_runtime(now_seconds)
        self._publish()
        if self._are_pods_due(now_seconds):
            self._ask_pods(now_seconds)
            self._ask_resources(now_seconds)
            self._publish()
        self._find_places()
        self._publish()

    def examine(self) -> dict[str, "str | Unsupported"]:
        """Ask each source once and return what it answered or why it did not; fills the table. For the doctor."""
        found: dict[str, str | Unsupported] = {}
        if self._settings.pods_from != "apiserver":
            found["kubelet"] = _answered(
                lambda: f"{len(pods_of_list(self._kubelet.pods()).pods)} pods from {self._kubelet.endpoint}"
            )
            found["configz"] = _answered(lambda: _in_words(of_configz(self._kubelet.configz())))
        self.refresh(time.monotonic())
        if self._settings.cri:
            found["runtime"] = _answered(self._runtime_in_words)
        if self._settings.pod_resources:
            found["pod resources"] = _answered(
                lambda: f"{len(self._open_resources().assigned())} containers have something for themselves"
            )
        if self._status.pods_from == "" and self._watch is not None:
            self._watch.wait(self._settings.timeout_seconds)
            self.refresh(time.monotonic())
        return found

    def _runtime_in_words(self) -> str:
        runtime = self._open_runtime()
        return f"{' '.join(runtime.version())} at {runtime.socket}, driver {runtime.cgroup_driver() or 'not told'}"

    # The runtime.

    def _ask_runtime(self, now_seconds: float) -> None:
        retry = self._retries["runtime"]
        if not self._settings.cri or not retry.is_due(now_seconds):
            return
        try:
            runtime = self._open_runtime()
            with self._hearing:
                self._heard_meanwhile.clear()
            view = runtime.view()
        except Unsupported as error:
            retry.failed(now_seconds)
            self._complaints.unsupported("container runtime", error)
            return
        retry.succeeded()
        self._complaints.settled("container runtime")
        with self._hearing:
            # Told while the lists were made, which may lack it. One that they have is told again with the next event.
            for event in self._heard_meanwhile:
                view = follow(view, event)
            living = {each.id for each in view.containers}
            places = {key: path for key, path in self._sources.places.items() if key in living}
            self._sources = replace(self._sources, view=view, places=places)

    def _tell(self, **answers: Any) -> None:
        """Take newer answers of some sources."""
        with self._hearing:
            self._sources = replace(self._sources, **answers)

    def _heard(self, event: RuntimeEvent) -> None:
        """Take an event of the runtime. For the thread that follows them."""
        with self._hearing:
            self._heard_meanwhile.append(event)
            if event.tells and self._sources.view is not None:
                self._sources = replace(self._sources, view=follow(self._sources.view, event))
        self.poke()

    def _open_runtime(self) -> "RuntimeClient":
        if self._runtime is None:
            try:
                from koordlet.kubelet.cri import EventFollower, RuntimeClient, RuntimeUnavailable, find_socket
            except ImportError as error:
                raise Unsupported(f"the runtime needs grpcio ({error})", "pip install 'koord[grpc]'") from error
            configured = self._sources.config.container_runtime_endpoint if self._sources.config else ""
            named = [self._settings.cri_socket] if self._settings.cri_socket else [configured]
            socket = find_socket(self._tree, *named, usual=not self._settings.cri_socket)
            if socket is None:
                raise RuntimeUnavailable(
                    f"there is no socket of a container runtime below {self._tree.root}",
                    "set [kubelet] cri_socket, and mount its directory into the agent's pod",
                )
            self._runtime = RuntimeClient(socket, self._settings.timeout_seconds)
            delays = Retry(self._random).delay_seconds
            self._follower = EventFollower(self._runtime, self._heard, delays)
            self._follower.start()
        return self._runtime

    def _find_places(self) -> None:
        """Ask where the cgroups of new containers are; a path does not change while the container lives."""
        view, runtime = self._sources.view, self._runtime
        if view is None or runtime is None:
            return
        places = dict(self._sources.places)
        deadline_seconds = time.monotonic() + min(self._settings.timeout_seconds, PLACES_SECONDS)
        for container in view.containers:
            if not container.running or container.id in places:
                continue
            left_seconds = deadline_seconds - time.monotonic()
            if left_seconds <= 0:
                if len(places) > len(self._sources.places):
                    self.poke()  # the others soon; meanwhile the usual place counts
                break
            try:
                places[container.id] = runtime.place_of(container.id, left_seconds)
            except Unsupported:
                self._counters["places_failed"] += 1  # it ended meanwhile, or the next read finds the runtime away
        self._tell(places=places)

    def _look_at_tree(self) -> None:
        try:
            self._publish()
        except Exception as error:  # noqa: BLE001
            self._counters["errors"] += 1
            self._complaints.note("pod tree", f"an unexpected error: {error!r:.200}")
            _log.debug("pod tree", exc_info=True)

    def _find_vanished(self) -> None:
        """Look which cgroups of running containers have ended; only those that were seen count."""
        running = {
            each.cgroup_path: each.id
            for pod in self._table.pods
            for each in pod.containers
            if each.running and each.cgroup_path
        }
        gone = self._tree_check.ended(running, self._siblings(), self._vanished)
        if gone or self._vanished:
            # Until the runtime says so, too. The table may lack the pod by then: its last container has ended.
            told = _running_ids(self._sources.view)
            kept = {path: each for path, each in self._vanished.items() if each in told}
            self._vanished = kept | {path: running[path] for path in gone}

    def _siblings(self) -> dict[str, str]:
        """Path of the pod's sandbox by path of each of its containers: where it was seen, the others are beside it."""
        siblings = {}
        for pod in self._table.pods:
            sandbox = next((each.cgroup_path for each in pod.containers if each.role is ContainerRole.SANDBOX), "")
            siblings.update({each.cgroup_path: sandbox for each in pod.containers if each.cgroup_path and sandbox})
        return siblings

    # Pods.

    def _are_pods_due(self, now_seconds: float) -> bool:
        """Whether to read the pods: at the interval, and where the runtime's sandboxes are others than then."""
        is_awaited, self._is_pod_awaited = self._is_pod_awaited, False
        if now_seconds >= self._pods_due_seconds or self._is_watching():
            return True
        is_runtime_away = not self._settings.cri or self._retries["runtime"].wait_seconds(now_seconds) > 0
        if _sandboxes(self._sources.view) == self._sandboxes and not is_runtime_away and not is_awaited:
            return False  # without a runtime, what poked may have been a pod
        earliest_seconds = self._pods_read_seconds + PODS_SPACING_SECONDS
        if now_seconds < earliest_seconds:
            self._pods_due_seconds = min(self._pods_due_seconds, earliest_seconds)
            return False
        return True

    def _is_watching(self) -> bool:
        return self._watch is not None and self._status.pods_from == "apiserver"

    def _ask_pods(self, now_seconds: float) -> None:
        self._counters["relists"] += 1
        self._pods_read_seconds = now_seconds
        self._sandboxes = _sandboxes(self._sources.view)
        found = self._pods_of_kubelet(now_seconds) or self._pods_of_apiserver()
        wait_seconds = self._settings.relist_seconds
        if found and any(each.metadata.deletion_timestamp for each in self._sources.pods):
            wait_seconds = min(wait_seconds, TERMINATING_SECONDS)
        elif not found:
            wait_seconds = min(wait_seconds, self._retries["kubelet"].wait_seconds(now_seconds))
        self._pods_due_seconds = now_seconds + wait_seconds * self._random.uniform(0.8, 1.2)

    def _pods_of_kubelet(self, now_seconds: float) -> bool:
        retry = self._retries["kubelet"]
        if self._settings.pods_from == "apiserver" or not retry.is_due(now_seconds):
            return False
        try:
            found = pods_of_list(self._kubelet.pods())
        except (Unsupported, NotAPodList) as error:
            retry.failed(now_seconds)
            self._complaints.unsupported("kubelet", error)
            self._is_stale = True
            return False
        retry.succeeded()
        self._complaints.settled("kubelet")
        self._set_pods("kubelet", found.pods, found.problems)
        if self._is_stale:
            # It was away: another one may have come back, with another configuration.
            self._is_stale = False
            self._read_config(now_seconds)
        if self._watch is not None:
            watch, self._watch = self._watch, None
            watch.close()
        return True

    def _pods_of_apiserver(self) -> bool:
        if self._settings.pods_from == "kubelet" or self._apiserver is None:
            return False
        if self._watch is None:
            self._watch = self._apiserver.watch(self.poke)
            self._watch.start()
        pods = self._watch.pods()
        if pods is None:
            return False
        lost = self._watch.undecodable
        self._set_pods("apiserver", pods, (f"{lost} pods are not readable",) if lost else ())
        return True

    def _set_pods(self, pods_from: str, pods: tuple[NodePod, ...], problems: tuple[str, ...]) -> None:
        if pods_from != self._status.pods_from:
            _log.info("pods of this node come from the %s: %d", pods_from, len(pods))
        self._answered_seconds = time.monotonic()
        by_kubelet = pods_from == "kubelet"
        placed: set[str] = set()
        if self._sources.view is None:
            known = (each for each in self._table.pods if each.cgroup_path)
            placed = {each.cgroup_uid for each in known if self._tree_check.is_there(each.cgroup_path)}
        left = departed(self._sources, pods, placed, by_kubelet=by_kubelet)
        self._tell(pods=pods, departed=left, by_kubelet=by_kubelet)
        self._list_problems = problems
        self._status = replace(self._status, pods_from=pods_from)

    def _ask_resources(self, now_seconds: float) -> None:
        retry = self._retries["pod resources"]
        if not self._settings.pod_resources or not retry.is_due(now_seconds):
            return
        try:
            assigned = self._open_resources().assigned()
        except Unsupported as error:
            retry.failed(now_seconds)
            self._complaints.unsupported("pod resources", error)
            return
        retry.succeeded()
        self._complaints.settled("pod resources")
        self._tell(assigned=assigned)

    def _open_resources(self) -> "PodResourcesClient":
        if self._resources is None:
            try:
                from koordlet.kubelet.pod_resources import PodResourcesClient
            except ImportError as error:
                raise Unsupported(f"pod resources need grpcio ({error})", "pip install 'koord[grpc]'") from error
            socket = self._tree.path(self._settings.pod_resources_socket)
            self._resources = PodResourcesClient(socket, self._settings.timeout_seconds)
        return self._resources

    # The kubelet's configuration.

    def _read_config(self, now_seconds: float) -> None:
        self._config_due_seconds = now_seconds + CONFIG_SECONDS
        is_asked = self._settings.pods_from != "apiserver" and self._retries["kubelet"].is_due(now_seconds)
        runtime = self._runtime
        config = self._config_reader.read(
            self._kubelet.configz if is_asked else None, runtime.cgroup_driver if runtime else lambda: None
        )
        if config is None:
            self._config_due_seconds = now_seconds + self._settings.relist_seconds
        elif config != self._sources.config:
            _log.info("kubelet's cgroups at %s, by %s", kubepods_path(config), config.source)
            self._tree_thread.follow(lambda: mount_of(self._tree), kubepods_path(config))
            self._tell(config=config)

    def _publish(self) -> None:
        with self._publishing:
            # A second time for what the table has only now: of that too, something may have ended already.
            if self._status.pods_from and self._publish_once():
                self._publish_once()

    def _publish_once(self) -> bool:
        """Return whether there was anything new."""
        self._find_vanished()
        sources = replace(self._sources, vanished=frozenset(self._vanished))
        if sources == self._published:
            return False
        self._published = sources
        assembly = assemble(sources, self._table)
        self._note(assembly)
        if self._table.generation == 0 or assembly.pods != self._table.pods:
            self._table = PodTable(assembly.pods, generation=self._table.generation + 1)
            self._publishing.notify_all()
        return True

    def _note(self, assembly: Assembly) -> None:
        problems = self._list_problems + assembly.problems
        for problem in problems:
            self._complaints.note(problem, problem)
        self._status = replace(self._status, unplaced=assembly.unplaced, unknown=assembly.unknown, problems=problems)


def _answered(ask: Callable[[], str]) -> "str | Unsupported":
    try:
        return ask()
    except Unsupported as error:
        return error
    except (ConfigurationError, NotAPodList) as error:
        return Unsupported(str(error))


def _in_words(config: KubeletConfig) -> str:
    return (
        f"CPU manager {config.cpu_manager_policy}, memory manager {config.memory_manager_policy}, "
        f"MemoryQoS {'on' if config.memory_qos else 'off'}"
    )


def _sandboxes(view: RuntimeView | None) -> frozenset[tuple[str, bool]]:
    return frozenset((each.id, each.ready) for each in view.sandboxes) if view else frozenset()


def _running_ids(view: RuntimeView | None) -> frozenset[str]:
    if view is None:
        return frozenset()
    containers = {each.id for each in view.containers if each.running}
    return frozenset(containers | {each.id for each in view.sandboxes if each.ready})
