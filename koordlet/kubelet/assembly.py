"""The table's pods from documents, the runtime's view and the kubelet's configuration. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from koordlet.identity.pods import NOTHING_ASSIGNED, Assigned, ContainerRole, PodContainer, PodFacts, PodTable
from koordlet.kubelet.cgroup_paths import container_path, pod_path
from koordlet.kubelet.configuration import KubeletConfig
from koordlet.kubelet.pod_documents import NodePod
from koordlet.kubelet.pod_facts import describe, newest_first
from koordlet.kubelet.runtime_view import RuntimeContainer, RuntimeSandbox, RuntimeView

SANDBOX = "POD"
"""Name of a pod's sandbox among its containers; no container of a pod can have it."""

AssignedOf = Mapping[tuple[str, str], Assigned]
"""By `namespace/pod` and container."""
PlacesOf = Mapping[str, str]
"""Path of the cgroup that the runtime names, by id of container or sandbox."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Newest answers of all sources; None and empty where one did not answer yet."""

    pods: Sequence[NodePod] = ()
    view: RuntimeView | None = None
    config: KubeletConfig | None = None
    places: PlacesOf = field(default_factory=dict)
    assigned: AssignedOf = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assembly:
    """Pods by their documents' order, and a sentence for each fact that is missing or contradicts another."""

    pods: tuple[PodFacts, ...]
    problems: tuple[str, ...] = ()
    unplaced: int = 0
    """Running containers whose cgroup is elsewhere than the kubelet's configuration says, or not known."""
    unknown: int = 0
    """Containers of the runtime whose pod no document describes."""


def assemble(sources: Sources, before: PodTable) -> Assembly:
    """Return the pods as all sources together tell; ids of ended instances are carried on from `before`.

    A container has its cgroup only inside that of its pod, which the kubelet's configuration places; a runtime that
    names another place is a problem, and the container then has none.
    """
    sandboxes, instances = _by_uid(sources.view)
    problems: list[str] = []
    unplaced = 0
    pods = []
    for document in sources.pods:
        described = describe(document)
        facts = described.facts
        if described.problem:
            problems.append(described.problem)
        uid = facts.cgroup_uid
        containers: Iterable[PodContainer] = facts.containers
        if sources.view is not None:
            containers = _merged(containers, instances.pop(uid, []), sandboxes.pop(uid, []))
        place = pod_path(sources.config, facts.kube_qos, uid) if sources.config else ""
        located = []
        for container in containers:
            path, problem = _place(container, place, sources)
            if problem:
                problems.append(f"pod {facts.name!r}, container {container.name!r}: {problem}")
            unplaced += container.running and bool(container.id) and not path
            assigned = sources.assigned.get((facts.name, container.name), NOTHING_ASSIGNED)
            located.append(replace(container, cgroup_path=path, assigned=assigned))
        known = before.of_uid(facts.uid)
        kept = tuple(_remembering(each, known) for each in located)
        pods.append(replace(facts, cgroup_path=place, containers=kept))
    unknown = sum(len(each) for each in instances.values())
    return Assembly(tuple(pods), tuple(problems), unplaced, unknown)


def _by_uid(view: RuntimeView | None) -> tuple[dict[str, list[RuntimeSandbox]], dict[str, list[RuntimeContainer]]]:
    """Sandboxes and containers of the runtime by uid of their pod."""
    sandboxes: dict[str, list[RuntimeSandbox]] = defaultdict(list)
    instances: dict[str, list[RuntimeContainer]] = defaultdict(list)
    if view is not None:
        for sandbox in view.sandboxes:
            sandboxes[sandbox.uid].append(sandbox)
        uids = {sandbox.id: sandbox.uid for sandbox in view.sandboxes}
        for instance in view.containers:
            instances[uids.get(instance.sandbox_id, "")].append(instance)
    return sandboxes, instances


def _merged(
    containers: Iterable[PodContainer], instances: Sequence[RuntimeContainer], sandboxes: Sequence[RuntimeSandbox]
) -> Iterable[PodContainer]:
    """Containers with the ids and states of the runtime, which knows them before the pod's status does; its sandbox."""
    by_name: dict[str, list[RuntimeContainer]] = defaultdict(list)
    order = {sandbox.id: (sandbox.ready, sandbox.attempt) for sandbox in sandboxes}
    for each in instances:
        by_name[each.name].append(each)
    for container in containers:
        known = sorted(
            by_name[container.name],
            key=lambda each: (each.running, order[each.sandbox_id], each.attempt),
            reverse=True,
        )
        if not known:
            yield replace(container, running=False)
            continue
        newest = known[0]
        yield replace(
            container,
            id=newest.id,
            running=newest.running,
            restarts=max(newest.attempt, container.restarts),
            earlier_ids=newest_first(newest.id, (each.id for each in known), (container.id,), container.earlier_ids),
        )
    ready_first = sorted(sandboxes, key=lambda each: (each.ready, each.attempt), reverse=True)
    if ready_first:
        newest_sandbox = ready_first[0]
        yield PodContainer(
            name=SANDBOX,
            id=newest_sandbox.id,
            role=ContainerRole.SANDBOX,
            running=newest_sandbox.ready,
            restarts=newest_sandbox.attempt,
            earlier_ids=newest_first(newest_sandbox.id, (each.id for each in ready_first)),
        )


def _place(container: PodContainer, pod: str, sources: Sources) -> tuple[str, str]:
    """Return the container's path, or none and the problem."""
    if not pod or not container.id or sources.config is None:
        return "", ""
    told = sources.places.get(container.id, "")
    if told:
        inside = told.rpartition("/")[0] == pod
        return (told, "") if inside else ("", f"the runtime's cgroup {told!r} is not in the pod's {pod!r}")
    runtime = sources.view.runtime if sources.view else ""
    return container_path(pod, runtime, sources.config, container.id), ""


def _remembering(container: PodContainer, known: PodFacts | None) -> PodContainer:
    """Return the container with the ids that it had before: runtimes remove ended instances."""
    if known is None:
        return container
    before = next((each for each in known.containers if each.name == container.name), None)
    if before is None:
        return container
    ids = newest_first(container.id, (before.id,), container.earlier_ids, before.earlier_ids)
    return container if ids == container.earlier_ids else replace(container, earlier_ids=ids)
