"""The plugin's answers: which events it wants, and what a container that is created or updated gets.

No answer is ever an error, because the runtime would not start the container then: what fails is counted, and the
container starts as the kubelet asked for it.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from google.protobuf.message import DecodeError, Message

from api.intents import Knob
from api.qos import QoSClass
from koordlet.hooks.decide import Decision, HookRules
from koordlet.hooks.node import effective_qos
from koordlet.hooks.reconciler import NodeFactsOf
from koordlet.hooks.resources import ContainerResources, knob_values
from koordlet.identity.pods import PodFacts, PodTable, PodTableOf
from koordlet.nri.adjustment import adjustment, update
from koordlet.nri.bounds import (
    NO_SUPPRESSION,
    ActiveActions,
    PodBounds,
    Suppression,
    bounded,
    nothing_active,
    suppression,
)
from koordlet.nri.nri_pb2 import (
    CREATE_CONTAINER,
    REMOVE_POD_SANDBOX,
    RUN_POD_SANDBOX,
    STOP_CONTAINER,
    UPDATE_CONTAINER,
    ConfigureRequest,
    ConfigureResponse,
    CreateContainerRequest,
    CreateContainerResponse,
    Empty,
    PodRequest,
    PodSandbox,
    SynchronizeRequest,
    SynchronizeResponse,
    UpdateContainerRequest,
    UpdateContainerResponse,
)
from koordlet.nri.sandbox import container_of, container_path, is_placed, pod_of

_log = logging.getLogger(__name__)

SERVICE = "nri.pkg.api.v1alpha1.Plugin"
AWAIT_POD_SECONDS = 0.3
"""Wait of a container for its pod, which was asked for when its sandbox started; runtimes wait 2 s for a plugin."""
EVENTS = (RUN_POD_SANDBOX, REMOVE_POD_SANDBOX, CREATE_CONTAINER, UPDATE_CONTAINER, STOP_CONTAINER)


@dataclass(frozen=True, slots=True)
class Birth:
    """A cgroup that starts with settings which a running one gets from the enforcer."""

    path: str
    values: Mapping[Knob, str]
    """Protocol state, by the rules alone: in effect once the container runs; of a pod wished for."""
    suppressed: Mapping[Knob, str]
    """Values of actions in effect on its neighbours and on no cgroup above; without them it has `values`, or what its
    pod's cgroup has. The enforcer keeps them as actions, though it never wrote to this cgroup."""


BirthHandler = Callable[[Birth], None]
"""Takes a birth; called on the plugin's thread and never waits."""
AwaitPod = Callable[[str, float], PodTable]
"""Has the pod of this uid read soon; returns the newest table once it has it, or after so many seconds."""
PodBoundsOf = Callable[[str], PodBounds]
"""Reads what the pod's cgroup at a path has."""


def ignore_birth(_birth: Birth) -> None:
    """Leave a new cgroup to the next tick."""


class Plugin:
    """Answers of one plugin; `handle` is called by one thread."""

    def __init__(
        self,
        rules: HookRules,
        facts_of: NodeFactsOf,
        pods: PodTableOf,
        *,
        v1: bool,
        bounds_of: PodBoundsOf,
        actions: ActiveActions = nothing_active,
        on_birth: BirthHandler = ignore_birth,
        await_pod: AwaitPod | None = None,
        request_timeout_milliseconds: int = 0,
    ) -> None:
        """`v1` says which version the host's cpu hierarchy is. Without `await_pod` a pod that the table does not have
        starts with what is safe for any, as one that does not come in time."""
        self.events: Counter[str] = Counter()
        """Calls by method."""
        self.failures: Counter[str] = Counter()
        """Calls that were answered with nothing because of an error, by method."""
        self.problems: dict[str, str] = {}
        """What rules could not follow of the newest pods, by `namespace/pod/container/rule`."""
        self.slowest_seconds = 0.0
        """Longest time for an answer."""
        self.runtime = ""
        """Name and version of the runtime; empty before it asked."""
        self._rules = rules
        self._facts_of = facts_of
        self._pods = pods
        self._v1 = v1
        self._bounds_of = bounds_of
        self._actions = actions
        self._on_birth = on_birth
        self._await_pod = await_pod
        self._request_timeout_milliseconds = request_timeout_milliseconds
        self._methods: dict[str, Callable[[bytes], Message]] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "RunPodSandbox": self._run_pod,
            "CreateContainer": self._create,
            "UpdateContainer": self._update,
        }
        self._nothing = {
            "Configure": ConfigureResponse(events=_mask()),
            "Synchronize": SynchronizeResponse(),
        }

    def handle(self, method: str, payload: bytes) -> bytes | None:
        """Return the answer to one call of the runtime; an event that needs none is answered with nothing."""
        started = time.perf_counter()
        self.events[method] += 1
        try:
            answer: Message = self._methods[method](payload) if method in self._methods else Empty()
        except Exception as error:  # noqa: BLE001 - an error would keep the container from starting
            self.failures[method] += 1
            if self.failures[method] == 1:
                level = logging.WARNING if isinstance(error, DecodeError) else logging.ERROR
                _log.log(level, "NRI %s is answered with nothing: %r", method, error)
            answer = self._nothing.get(method, Empty())
        self.slowest_seconds = max(self.slowest_seconds, time.perf_counter() - started)
        return answer.SerializeToString()

    def _configure(self, payload: bytes) -> Message:
        asked = ConfigureRequest.FromString(payload)
        self.runtime = f"{asked.runtime_name} {asked.runtime_version}".strip()
        return ConfigureResponse(events=_mask(), request_timeout=self._request_timeout_milliseconds)

    def _synchronize(self, payload: bytes) -> Message:
        """Containers that run already are the reconciler's."""
        asked = SynchronizeRequest.FromString(payload)
        return SynchronizeResponse(more=asked.more)

    def _run_pod(self, payload: bytes) -> Message:
        sandbox = PodRequest.FromString(payload).pod
        pods = self._table_with(sandbox, 0.0)
        pod = pod_of(sandbox, pods)
        decision = self._noted(self._rules.pod(pod, self._facts_of(pods)))
        values = knob_values(decision.resources, v1=self._v1)
        if values and pod.cgroup_path:
            self._on_birth(Birth(pod.cgroup_path, values, {}))
        return Empty()

    def _create(self, payload: bytes) -> Message:
        asked = CreateContainerRequest.FromString(payload)
        pods = self._table_with(asked.pod, AWAIT_POD_SECONDS)
        pod = pod_of(asked.pod, pods)
        container = container_of(asked.container, pod)
        decided = self._noted(self._rules.container(pod, container, self._facts_of(pods))).resources
        suppressed = self._suppressed(pod)
        given = self._within(decided, pod, suppressed)
        response = CreateContainerResponse()
        adjust = adjustment(given, asked.container.linux.resources, v1=self._v1)
        if adjust is not None:
            response.adjust.CopyFrom(adjust)
        self._tell_birth(container_path(asked.container), decided, given, suppressed)
        return response

    def _update(self, payload: bytes) -> Message:
        asked = UpdateContainerRequest.FromString(payload)
        pods = self._pods()
        pod = pod_of(asked.pod, pods)
        container = container_of(asked.container, pod)
        decided = self._noted(self._rules.container(pod, container, self._facts_of(pods))).resources
        given = self._within(decided, pod, self._suppressed(pod))
        changed = update(asked.container.id, given, asked.linux_resources, v1=self._v1)
        return UpdateContainerResponse(update=[changed] if changed is not None else [])

    def _table_with(self, sandbox: PodSandbox, wait_seconds: float) -> PodTable:
        """The table of pods, with this one if it is to come: what the scheduler gave a pod cannot be mended once a
        container was told of its devices."""
        pods = self._pods()
        if self._await_pod is None or not sandbox.uid or pods.of_uid(sandbox.uid) is not None:
            return pods
        return self._await_pod(sandbox.uid, wait_seconds if is_placed(sandbox) else 0.0)

    def _suppressed(self, pod: PodFacts) -> Suppression:
        if effective_qos(pod) is not QoSClass.BE or not pod.cgroup_path:
            return NO_SUPPRESSION
        return suppression(self._actions(), pod.cgroup_path)

    def _within(self, decided: ContainerResources, pod: PodFacts, suppressed: Suppression) -> ContainerResources:
        is_bounded = suppressed.cpus or decided.cpuset_cpus is not None or decided.cpu_quota_us is not None
        bounds = self._bounds_of(pod.cgroup_path) if is_bounded and pod.cgroup_path else PodBounds()
        return bounded(decided, bounds, suppressed, v1=self._v1)

    def _tell_birth(
        self, path: str, decided: ContainerResources, given: ContainerResources, suppressed: Suppression
    ) -> None:
        values = knob_values(decided, v1=self._v1)
        in_effect = knob_values(given, v1=self._v1)
        by_neighbours = suppressed.by_neighbours and Knob.CPUSET_CPUS in in_effect
        actions = {Knob.CPUSET_CPUS: in_effect[Knob.CPUSET_CPUS]} if by_neighbours else {}
        if path and (values or actions):
            self._on_birth(Birth(path, values, actions))

    def _noted(self, decision: Decision) -> Decision:
        for name, problem in decision.problems.items():
            if self.problems.get(name) != problem:
                _log.warning("%s: %s", name, problem)
        if len(self.problems) > 1000:
            self.problems.clear()
        self.problems |= decision.problems
        return decision


def _mask() -> int:
    """The events as the runtime wants them: a bit each, from the first."""
    return sum(1 << (event - 1) for event in EVENTS)
