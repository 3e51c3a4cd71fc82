"""The table's pods from documents, the runtime's view and the kubelet's configuration. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from koordlet.identity.pods import NOTHING_ASSIGNED, Assigned, ContainerRole, PodContainer, PodFacts, PodTable
from koordlet.kubelet.cgroup_paths import container_path, pod_path
from koordlet.kubelet.configuration import KubeletConfig
from koordlet.kubelet.pod_documents import NodePod
from koordlet.kubelet.pod_facts import cgroup_uid_of, describe, newest_first
from koordlet.kubelet.runtime_view import RuntimeContainer, RuntimeSandbox, RuntimeView

SANDBOX = "POD"
"""Name of a pod's sandbox among its containers; no container of a pod can have it."""

AssignedOf = Mapping[tuple[str, str], Assigned]
"""By `namespace/pod` and container."""
PlacesOf = Mapping[str, str]
"""Path of the cgroup that the runtime names, by id of container or sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Newest answers of all sources; None and empty where one did not answer yet."""

    pods: Sequence[NodePod] = ()
    by_kubelet: bool = True
    """Who listed the pods: the kubelet, or the API server."""
    departed: Sequence[NodePod] = ()
    """Pods that are not listed any more and whose containers may still run."""
    view: RuntimeView | None = None
    config: KubeletConfig | None = None
    vanished: frozenset[str] = frozenset()
    """Cgroups that were there and are not any more: their containers ended, which a busy runtime tells late."""
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
    listed = [(each, True) for each in sources.pods] + [(each, False) for each in sources.departed]
    problems: list[str] = []
    pods: list[PodFacts] = []
    for document, is_listed in listed:
        described = describe(document, by_kubelet=sources.by_kubelet)
        facts, uid = described.facts, described.facts.cgroup_uid
        problems += filter(None, [described.problem])
        place = pod_path(sources.config, facts.kube_qos, uid) if sources.config else ""
        containers: Iterable[PodContainer] = facts.containers
        stranger = next((each for each in sandboxes.get(uid, ()) if f"{each.namespace}/{each.pod}" != facts.name), None)
        if stranger is not None:
            problems.append(f"pod {facts.name!r} claims the uid {uid} of {stranger.namespace}/{stranger.pod}")
            place = ""
        elif sources.view is not None:
            containers = _merged(containers, instances.pop(uid, []), sandboxes.pop(uid, []))
        facts = replace(facts, cgroup_path=place, containers=tuple(containers))
        located, found = _located(facts, sources)
        if not is_listed and not any(each.running for each in located.containers):
            continue
        problems += found
        pods.append(_remembering(located, before.of_uid(facts.uid)))
    running = (each for pod in pods for each in pod.containers if each.running and each.id)
    return Assembly(
        tuple(pods),
        tuple(problems),
        unplaced=sum(not each.cgroup_path for each in running),
        unknown=sum(len(each) for each in instances.values()),
    )


def _located(pod: PodFacts, sources: Sources) -> tuple[PodFacts, list[str]]:
    """Return the pod with what its containers have: their cgroups, and what the kubelet's managers gave them."""
    containers, problems = [], []
    for container in pod.containers:
        path, problem = _place(container, pod.cgroup_path, sources)
        if problem:
            problems.append(f"pod {pod.name!r}, container {container.name!r}: {problem}")
        assigned = sources.assigned.get((pod.name, container.name), NOTHING_ASSIGNED)
        running = container.running and path not in sources.vanished
        containers.append(replace(container, cgroup_path=path, running=running, assigned=assigned))
    return replace(pod, containers=tuple(containers)), problems


def departed(
    before: Sources, now: Sequence[NodePod], placed: Collection[str] = (), *, by_kubelet: bool
) -> tuple[NodePod, ...]:
    """Return the pods that `now` lists no more while their containers still run.

    A pod that is deleted without grace is gone from the kubelet's list before its containers are. And a kubelet that
    starts while the API server is away lists its static pods alone, until it has synced: all others go on, with their
    class and the CPUs that they were given. Without a runtime a pod runs whose uid is among `placed`: it has a cgroup.
    """
    listed = {cgroup_uid_of(each, by_kubelet=by_kubelet) for each in now}
    alive = _alive(before.view) if before.view is not None else frozenset(placed)
    gone = (*before.pods, *before.departed)
    return tuple(each for each in gone if cgroup_uid_of(each, by_kubelet=before.by_kubelet) in alive - listed)


def _alive(view: RuntimeView | None) -> frozenset[str]:
    """Uids of the pods with a ready sandbox or a running container."""
    if view is None:
        return frozenset()
    uids = {each.id: each.uid for each in view.sandboxes}
    ready = {each.uid for each in view.sandboxes if each.ready}
    return frozenset(ready | {uids.get(each.sandbox_id, "") for each in view.containers if each.running})


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


def _remembering(pod: PodFacts, known: PodFacts | None) -> PodFacts:
    """Return the pod whose containers have the ids of before too: runtimes remove ended instances."""
    if known is None:
        return pod
    before = {each.name: each for each in known.containers}
    containers = []
    for each in pod.containers:
        old = before.get(each.name)
        ids = newest_first(each.id, (old.id,), each.earlier_ids, old.earlier_ids) if old else each.earlier_ids
        containers.append(each if ids == each.earlier_ids else replace(each, earlier_ids=ids))
    return replace(pod, containers=tuple(containers))
