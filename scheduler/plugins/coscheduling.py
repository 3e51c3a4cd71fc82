"""Coscheduling: members of a gang are tried one after another in one go, and bind together or not at all.

`scheduler.gang` decides; this plugin reports pods to it and carries out its answers. Nothing
waits for a timer: a gang is tried again when an event wakes any of its members.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from api.crds import POD_GROUP, PodGroup
from api.kube.objects import Pod
from api.kube.workloads import WorkloadPodGroup
from cluster.resources import PODS, WORKLOAD_POD_GROUPS, Key, custom, merge_patch, strategic_patch
from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.explain.diagnosis import sentence
from scheduler.framework import (
    Action,
    Attempt,
    Failure,
    Handle,
    Nomination,
    ObjectEvent,
    Plugin,
    Reason,
    Route,
    Verb,
    Wait,
    Write,
)
from scheduler.gang.deadlock import HeldGroup, give_back
from scheduler.gang.ended import End, EndedMembers
from scheduler.gang.gangs import Allow, Gang, Gangs
from scheduler.gang.spec import (
    OF_WORKLOADS,
    GangDefaults,
    GangError,
    GangSpec,
    MatchPolicy,
    gang_of_pod,
    spec_of_pod,
    spec_of_pod_group,
    spec_of_workload_group,
)
from scheduler.gang.status import status_changes

POD_GROUPS = custom(POD_GROUP)
WORKLOAD_GROUPS = WORKLOAD_POD_GROUPS.of(WorkloadPodGroup)
BIND_GROUP = "internal.scheduling.koordinator.sh/bind-gang-group-id"
BIND_COUNT = "internal.scheduling.koordinator.sh/bind-gang-member-count"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of Coscheduling."""

    default_timeout_seconds: float = 600.0
    """Longest wait of placed members for the rest where the gang sets none."""
    default_match_policy: Literal["only-waiting", "waiting-and-running", "once-satisfied"] = "once-satisfied"
    """Members that count where the gang sets no policy."""
    deadlock_seconds: float = 10.0
    """Time for which gangs of the mode NonStrict hold places and none comes further, before one is made whole by what
    younger ones hold."""
    outside_quiet_seconds: float = 3.0
    """A scheduler that calls the extender tries members refused at `filter` again at an event of the cluster only. The
    others, held at `bind`, are given up when no further one came for so long, which is such an event."""


class Coscheduling(Plugin[str]):
    """Holds placed members at Permit until their group is complete."""

    name = "Coscheduling"
    rank = 330
    requeue_on = frozenset({"podgroups/add", "podgroups/update", "nodes/add", "nodes/update", "pods/delete"})
    watches = (POD_GROUPS, WORKLOAD_GROUPS)

    def __init__(self, config: Config, handle: Handle) -> None:
        super().__init__(config, handle)
        self.gangs = Gangs()
        self._ended = EndedMembers()
        self._defaults = GangDefaults(config.default_timeout_seconds, MatchPolicy(config.default_match_policy))
        self._uids: dict[str, str] = {}
        """UID by pod key, for every pod of a gang."""
        self._queued: set[str] = set()
        """Keys of pending members."""
        self._outside: set[str] = set()
        """Those of them that another scheduler queues."""
        self._turned_away: set[str] = set()
        """Members of `_outside` that were refused for want of others, until they are asked about again."""
        self._moved: dict[str, float] = {}
        """When a member of `_outside` last came further, by group, for groups with members that are held."""
        self._leaving: set[str] = set()
        """Keys of placed members that were removed: gone, unless only for the sake of argument."""
        self._short: set[str] = set()
        """Members that were held back or refused for want of others, until they are asked about again."""
        self._came_bound: set[str] = set()
        """Gangs whose members others bound, until their groups are looked at again."""
        self._attempted = ""
        """Key of the member last tried in the running attempt."""
        self._together: dict[str, tuple[str, int]] = {}
        """Group and number of members that bind together, by key."""
        self._held: dict[str, str] = {}
        """Condition last written to members held back before the queue, by key."""
        self._reported: dict[Key, dict[str, Any]] = {}
        """Status last written to each PodGroup; its watch may have yet to show it."""
        self._stuck: tuple[frozenset[str], float] = (frozenset(), 0.0)
        """Members that groups of the mode NonStrict hold, and since when they are the same."""
        self._now = 0.0

    # Observer

    def pod_queued(self, info: PodInfo) -> None:
        """A member appeared: with it the gang may be large enough to be tried."""
        self._settle()
        if info.pod.spec.scheduling_gates:
            # Not admitted yet (a job queue holds it): it neither counts nor is told anything here.
            self._forget(info.key)
        elif self._see(info):
            self._queued.add(info.key)
            (self._outside.add if info.outside else self._outside.discard)(info.key)
            self._wake(info.key)

    def pod_forgotten(self, info: PodInfo) -> None:
        """A pending member was deleted."""
        self._forget(info.key)

    def pod_added(self, row: Row, info: PodInfo) -> None:
        """A member that is bound counts for good."""
        self._leaving.discard(info.key)
        if info.pod.spec.node_name and self._see(info):
            self._forget_pending(info.key)
            gang = self.gangs.pod_bound(info.key)
            if gang is not None:
                self._came_bound.add(gang.id)

    def pod_removed(self, row: Row, info: PodInfo) -> None:
        """A placed member is gone, or lost its place (then `unreserve` follows)."""
        if info.key in self._uids and info.key not in self._queued:
            self._leaving.add(info.key)

    def pod_finished(self, pod: Pod) -> None:
        """A member counts as succeeded or failed from here on, as long as it exists."""
        meta = pod.metadata
        gang = gang_of_pod(pod)
        if gang is not None:
            end = End(meta.uid, pod.status.phase == "Succeeded", bool(pod.spec.node_name))
            self._ended.add(gang, meta.key, end)

    def pod_deleted(self, pod: Pod) -> None:
        """A finished member that is deleted counts no more."""
        self._ended.forget(pod.metadata.key, pod.metadata.uid)

    def on_object(self, event: ObjectEvent) -> None:
        """A PodGroup changed."""
        if event.resource.group == WORKLOAD_GROUPS.group:
            self._workload_group_changed(event)
            return
        gang = str(event.key)
        if event.action is Action.DELETE:
            self.gangs.withdraw(gang)
            self._ended.withdraw(gang)
            self._reported.pop(event.key, None)
            return
        group: PodGroup = event.after
        self.gangs.declare(self._spec_of(gang, group))
        members = self.gangs.by_id[gang].members
        for key in sorted(members)[:1]:
            self._wake(key)

    def _workload_group_changed(self, event: ObjectEvent) -> None:
        gang = f"{event.key}{OF_WORKLOADS}"
        if event.action is Action.DELETE:
            self.gangs.withdraw(gang)
            self._ended.withdraw(gang)
            return
        policy = event.after.spec.scheduling_policy.gang
        minimum = policy.min_count if policy is not None else None
        self.gangs.declare(spec_of_workload_group(gang, minimum, self._defaults))
        for key in sorted(self.gangs.by_id[gang].members)[:1]:
            self._wake(key)

    def leads(self) -> None:
        """State everything anew, and bring what is left of groups that are bound in part before its equals.

        The process before may have ended while it bound them. As members may also have gone since, by preemption for
        one, the rest goes before no pod of higher priority.
        """
        self._held.clear()
        self._reported.clear()
        self.handle.activate_first(self._uids[key] for key in self.gangs.cut_off(self._queued - self._outside))

    def tick(self, now: float) -> Iterable[Write]:
        """Write the conditions of held members and the status of PodGroups."""
        self._now = now
        self._settle()
        self._wake_beside_bound()
        self._wake_turned_away(now)
        self._break_deadlock(now)
        return [*self._conditions(), *self._phases()]

    # Queue

    def pre_enqueue(self, info: PodInfo) -> Reason | None:
        """Members wait outside the queue until all gangs of the group can be tried."""
        shortage = self._shortage(info.key)
        return Reason(shortage) if shortage else None

    def kin(self, info: PodInfo) -> Iterable[str]:
        """The members of the pod's group."""
        return [self._uids[member] for member in self._group(info.key) if member in self._uids]

    def together(self, info: PodInfo) -> Sequence[PodInfo]:
        """The pending members that the group still needs, the pod itself first; empty without a group."""
        pending = {other.key: other for other in self.handle.pending() if other.key in self._uids} | {info.key: info}
        chosen: list[str] = []
        for name in (self.gangs.group_of(info.key) or "").split(","):
            gang = self.gangs.by_id.get(name)
            if gang is None or gang.spec is None or not gang.spec.strict:
                continue
            able = sorted(gang.members & pending.keys() - gang.bound, key=lambda key: (key != info.key, key))
            chosen += able[: gang.unbound]
        others = [pending[key] for key in chosen if key != info.key]
        return (info, *others) if others else ()

    def next_pod(self) -> str | None:
        """The next member of the group being tried; after the last, an incomplete group lets go."""
        self._wake_beside_bound()
        while self._attempted:
            attempt = self.gangs.attempt_of(self._attempted)
            pending = self.gangs.untried(self._attempted)
            if attempt is None or not pending:
                self._end_attempt()
                return None
            attempt.tried.add(pending[0])
            if pending[0] in self._queued and pending[0] not in self._outside:
                return self._uids[pending[0]]
        return None

    # Attempt

    def prepare(self, info: PodInfo) -> str | None:
        """The gang's id; None for pods without one."""
        return gang_of_pod(info.pod)

    def pre_filter(self, attempt: Attempt, spec: str) -> Reason | None:
        """Members may have gone since; and once one has failed, the others need not be tried in this attempt."""
        if not attempt.simulated:
            self._settle()
        key = attempt.pod.key
        shortage = self.gangs.shortage(key) if attempt.simulated else self._shortage(key)
        if shortage is not None:
            if key in self._outside and not attempt.simulated:
                self._turned_away.add(key)
            return Reason(shortage, resolvable=False)
        if attempt.simulated:
            return None
        if key in self._turned_away:
            self._came_further(key, attempt.now)
        running = self.gangs.attempt_of(key)
        return Reason(running.failure, resolvable=False) if running is not None and running.failure else None

    def post_filter(self, attempt: Attempt, spec: str, failure: Failure) -> Nomination | None:
        """A member found no node: those already placed let go at once."""
        self._begin(attempt.pod.key)
        if failure.reason is None or failure.reason.plugin != self.name:
            reason = sentence(failure, attempt.snapshot)
            self._reject(self.gangs.fail(attempt.pod.key, reason), attempt.pod.key, reason)
        return None

    def permit(self, attempt: Attempt, spec: str, row: Row) -> Wait | Reason | None:
        """The last member lets all go; the others wait."""
        key = attempt.pod.key
        if not attempt.pod.outside:
            self._begin(key)
        answer = self.gangs.place(key)
        if not isinstance(answer, Allow):
            if attempt.pod.outside:
                self._came_further(key, attempt.now)
            return Wait(answer.seconds)
        group = self.gangs.group_of(key) or spec
        if len(answer.pods) > 1:
            self._together.update(dict.fromkeys(answer.pods, (group, len(answer.pods))))
        for other in answer.pods:
            if other != key and other in self._uids:
                self.handle.allow(self._uids[other], self.name)
        return None

    def unreserve(self, attempt: Attempt, spec: str, row: Row) -> None:
        """A member lost its place: in a strict group the other waiting members lose theirs."""
        if attempt.simulated:
            return
        key = attempt.pod.key
        self._together.pop(key, None)
        self._reject(self.gangs.unplace(key), key, "it lost its place")

    def pre_bind(self, attempt: Attempt, spec: str, row: Row) -> Sequence[Write]:
        """Note on the pod with how many others it binds."""
        group = self._together.pop(attempt.pod.key, None)
        if group is not None:
            attempt.pod.patch[BIND_GROUP], attempt.pod.patch[BIND_COUNT] = group[0], str(group[1])
        return ()

    def post_bind(self, attempt: Attempt, spec: str, row: Row) -> Iterable[Write]:
        """A member is bound."""
        self._forget_pending(attempt.pod.key)
        self._held.pop(attempt.pod.key, None)
        self.gangs.pod_bound(attempt.pod.key)
        return ()

    # Diagnosis

    def routes(self) -> Mapping[str, Route]:
        """State of all gangs, or of one."""
        return {"gangs": self._gangs, "gang/{namespace}/{name}": self.describe}

    def describe(self, namespace: str, name: str) -> dict[str, Any]:
        """A gang's parameters and members. LookupError for an unknown one."""
        gang = self.gangs.by_id.get(f"{namespace}/{name}")
        if gang is None:
            raise LookupError(f"no gang {namespace}/{name}")
        return _described(gang)

    def _gangs(self) -> dict[str, Any]:
        return {gang.id: _described(gang) for gang in self.gangs.by_id.values()}

    # Internals

    def _see(self, info: PodInfo) -> bool:
        labels, annotations = info.labels, info.pod.metadata.annotations
        gang = gang_of_pod(info.pod)
        if gang is None:
            return False
        self._uids[info.key] = info.uid
        self._ended.forget(info.key)
        if gang.endswith(OF_WORKLOADS):
            self.gangs.pod_seen(info.key, gang, None, problem="waiting for its PodGroup of scheduling.k8s.io")
            return True
        try:
            spec, problem = spec_of_pod(gang, labels, annotations, defaults=self._defaults), ""
        except GangError as error:
            spec, problem = None, str(error).removeprefix(f"gang {gang}: ")
        self.gangs.pod_seen(info.key, gang, spec, problem=problem)
        return True

    def _spec_of(self, gang: str, group: PodGroup) -> GangSpec:
        meta, timeout = group.metadata, group.spec.schedule_timeout_seconds
        wait = float(timeout) if timeout is not None else None
        parts = {"labels": meta.labels, "annotations": meta.annotations}
        try:
            return spec_of_pod_group(gang, group.spec.min_member, wait, **parts, defaults=self._defaults)
        except GangError:
            parts["annotations"] = {}
            return spec_of_pod_group(gang, group.spec.min_member, wait, **parts, defaults=self._defaults)

    def _wake(self, key: str) -> None:
        """Bring in all members of the group that were held back, if nothing is missing any more."""
        if self.gangs.shortage(key) is not None:
            return
        self.handle.activate(self._uids[member] for member in sorted(self._group(key) & self._queued))

    def _wake_beside_bound(self) -> None:
        """Wake members that were short of those that others bound; to all others nothing has changed."""
        while self._came_bound:
            gang = self.gangs.by_id.get(self._came_bound.pop())
            if gang is not None and gang.bound:
                short = sorted(self._group(min(gang.bound)) & self._short)
                self.handle.activate([self._uids[key] for key in short if self.gangs.shortage(key) is None])

    def _group(self, key: str) -> set[str]:
        """Return the members of all gangs of the pod's group."""
        group = (self.gangs.group_of(key) or "").split(",")
        return {member for gang in group if gang in self.gangs.by_id for member in self.gangs.by_id[gang].members}

    def _shortage(self, key: str) -> str | None:
        shortage = self.gangs.shortage(key)
        (self._short.discard if shortage is None else self._short.add)(key)
        return shortage

    def _forget_pending(self, key: str) -> None:
        for keys in (self._queued, self._outside, self._turned_away, self._short):
            keys.discard(key)

    def _forget(self, key: str) -> None:
        self._forget_pending(key)
        self._held.pop(key, None)
        self._together.pop(key, None)
        if self._attempted == key:
            self._end_attempt()
        if self._uids.pop(key, None) is not None:
            self.gangs.pod_gone(key)

    def _settle(self) -> None:
        """Forget members that were removed for good; trials have put theirs back by then."""
        for key in list(self._leaving):
            self._forget(key)
        self._leaving.clear()

    def _begin(self, key: str) -> None:
        """The member takes part in its group's attempt, which ends any other's."""
        if self._attempted and self.gangs.group_of(self._attempted) != self.gangs.group_of(key):
            self._end_attempt()
        if self.gangs.begin(key) is not None:
            self._attempted = key

    def _end_attempt(self) -> None:
        key, self._attempted = self._attempted, ""
        self._reject(self.gangs.close(key), key, "the group could not be placed as a whole")

    def _came_further(self, key: str, now: float) -> None:
        """A pod of `_outside` passed `filter` or is held at `bind`."""
        self._turned_away.discard(key)
        group = self.gangs.group_of(key)
        if group is not None:
            self._moved[group] = now

    def _wake_turned_away(self, now: float) -> None:
        """Give up members at `bind` where others of the group were refused and wait for an event; once per refusal."""
        held: dict[str, list[str]] = {}
        for info, _ in self.handle.waiting().values():
            group = self.gangs.group_of(info.key)
            if info.outside and group is not None and self.gangs.held(info.key):
                held.setdefault(group, []).append(info.key)
        self._moved = {group: self._moved.get(group, now) for group in held}
        quiet: float = self.config.outside_quiet_seconds
        for group, keys in held.items():
            refused = {key for key in self._turned_away if self.gangs.group_of(key) == group}
            if refused and now - self._moved[group] >= quiet:
                self._turned_away -= refused
                self._reject(keys, keys[0], f"no other member came for {quiet:g} s")

    def _break_deadlock(self, now: float) -> None:
        """Give back what younger groups of the mode NonStrict hold where that makes an older one whole."""
        held: dict[str, list[PodInfo]] = {}
        for info, _ in self.handle.waiting().values():
            group = self.gangs.group_of(info.key)
            if group is not None and not info.outside and self.gangs.held(info.key) and self.gangs.loose(info.key):
                held.setdefault(group, []).append(info)
        keys = frozenset(info.key for members in held.values() for info in members)
        if keys != self._stuck[0]:
            self._stuck = keys, now
        if len(held) < 2 or now - self._stuck[1] < self.config.deadlock_seconds:
            return
        self._stuck = keys, now
        pending = {info.key: info for info in self.handle.pending() if info.key in self._queued - self._outside}
        groups = []
        for group, members in held.items():
            missing = [pending[key] for key in self.gangs.needed(members[0].key, pending)]
            if missing:
                groups.append(HeldGroup(group, tuple(members), tuple(missing)))
        found = give_back(groups, self._have_room)
        if found is not None:
            whole, given = found
            for younger in given:
                self._reject(
                    [info.key for info in younger.held], whole.missing[0].key, f"gang {whole.id} needs its room"
                )
            self.handle.activate(info.uid for info in whole.missing)

    def _have_room(self, pods: Sequence[PodInfo], without: Sequence[PodInfo]) -> bool:
        """Return whether pods find nodes one after another once others have let go."""
        snapshot = self.handle.snapshot
        with snapshot.trial() as trial:
            for info in without:
                trial.remove(info.uid)
            for info in pods:
                row, _ = self.handle.best_row(Attempt(info, snapshot, self._now, simulated=True))
                if row is None:
                    return False
                trial.add(info, row)
        return True

    def _reject(self, keys: Iterable[str], cause: str, reason: str) -> None:
        for key in keys:
            if key in self._uids:
                text = f"{self.gangs.progress(key)}; {cause}: {reason}"
                self.handle.reject(self._uids[key], Reason(text, plugin=self.name))

    def _conditions(self) -> Iterable[Write]:
        for key in sorted(self._queued - self._outside):
            shortage = self.gangs.shortage(key) or ""
            if self._held.get(key, "") == shortage:
                continue
            self._held[key] = shortage
            if shortage:
                condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": shortage}
                namespace, _, name = key.partition("/")
                patch = strategic_patch({"status": {"conditions": [condition]}})
                yield Write(Verb.PATCH_STATUS, PODS, Key(namespace, name), patch)

    def _phases(self) -> Iterable[Write]:
        groups = self.handle.objects(POD_GROUPS)
        if not groups:
            return
        placed = self.handle.snapshot.pods
        infos = {info.key: info for info in self.handle.pending() if info.key in self._uids}
        infos |= {key: placed[uid].info for key, uid in self._uids.items() if uid in placed}
        for key, group in groups.items():
            gang = self.gangs.by_id.get(str(key))
            if gang is None:
                continue
            members = {member: infos[member] for member in gang.members if member in infos}
            ended = self._ended.of(gang.id)
            changes = status_changes(group, gang, members=members, ended=ended, now=self._now)
            figures = {name: value for name, value in changes.items() if name != "scheduleStartTime"}
            if changes and self._reported.get(key) != figures:
                self._reported[key] = figures
                yield Write(Verb.PATCH, POD_GROUPS, key, merge_patch({"status": changes}))


def _described(gang: Gang) -> dict[str, Any]:
    spec = gang.spec
    return {
        "name": gang.id,
        "problem": gang.problem,
        "mode": None if spec is None else "Strict" if spec.strict else "NonStrict",
        "minRequiredNumber": spec.minimum if spec else None,
        "totalChildrenNum": spec.total if spec else None,
        "waitTimeSeconds": spec.wait_seconds if spec else None,
        "gangMatchPolicy": spec.policy.value if spec else None,
        "gangGroup": list(spec.group) if spec else [],
        "children": sorted(gang.members),
        "waitingForBindChildren": sorted(gang.waiting),
        "boundChildren": sorted(gang.bound),
        "onceResourceSatisfied": gang.satisfied_once,
    }
