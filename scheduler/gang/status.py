"""Status of a PodGroup, from its members."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from api.crds import PodGroup
from api.kube.times import rfc3339
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.gang.ended import End
from scheduler.gang.gangs import Gang
from scheduler.gang.phase import Counts, GangPhase, next_phase


def status_changes(
    group: PodGroup, gang: Gang, *, members: Mapping[str, PodInfo], ended: Collection[End], now: float
) -> dict[str, Any]:
    """The status fields to write; empty when nothing differs or the group has ended.

    `members` are the gang's living pods by key, `ended` its finished ones. `now` is in seconds since the epoch.
    """
    status = group.status
    before = GangPhase(status.phase) if status.phase in set(GangPhase) else GangPhase.UNKNOWN
    if before.terminal:
        return {}
    counts = _counts(gang, members, ended)
    phase = next_phase(before, group.spec.min_member, counts)
    wanted = {
        "phase": (phase.value, status.phase),
        "scheduled": (counts.bound, status.scheduled),
        "running": (counts.running, status.running),
        "succeeded": (counts.succeeded, status.succeeded),
        "failed": (counts.failed, status.failed),
    }
    changed: dict[str, Any] = {name: value for name, (value, old) in wanted.items() if value != old}
    if phase is GangPhase.SCHEDULING and not status.schedule_start_time:
        changed["scheduleStartTime"] = rfc3339(now)
    if phase is GangPhase.PRE_SCHEDULING and not status.occupied_by:
        changed["occupiedBy"] = _owners(members.values())
    return changed


def _counts(gang: Gang, members: Mapping[str, PodInfo], ended: Collection[End]) -> Counts:
    succeeded = sum(end.succeeded for end in ended)
    return Counts(
        pods=len(gang.members) + len(ended),
        bound=len(gang.bound) + sum(end.bound for end in ended),
        running=sum(members[key].pod.status.phase == "Running" for key in gang.bound if key in members),
        succeeded=succeeded,
        failed=len(ended) - succeeded,
    )


def _owners(members: Iterable[PodInfo]) -> str:
    """Sorted `namespace/name` of the controllers of all members."""
    owners = {
        f"{info.namespace}/{owner.name}" for info in members if (owner := info.pod.metadata.controlled_by) is not None
    }
    return ",".join(sorted(owners))
