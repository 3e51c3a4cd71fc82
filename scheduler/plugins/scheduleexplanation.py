"""ScheduleExplanation: for each pod or gang that stays pending, an object that says why, in Koordinator's fields.

Off unless it is enabled. An attempt that finds no node leaves its reasons here; about once a second the explanations
that are due are written. Their number and the rate of writes are bounded: what is left out keeps its condition and its
event. Where all places are taken, a namespace with fewer explanations gets one of the namespace with most. An object
belongs to its pods and goes with them; once they are bound it is deleted.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import Annotated, Any

import msgspec

from api.crds import SCHEDULE_EXPLANATION, ScheduleExplanation
from api.crds.placement import (
    AttemptExplanation,
    DomainExplanation,
    NodeFailure,
    NodeVictims,
    PlacedPod,
    PossibleVictim,
    ScheduleExplanationSpec,
)
from api.kube.meta import ObjectMeta, OwnerReference
from api.kube.times import rfc3339
from cluster.resources import Key, custom, merge_patch
from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.explain.details import MAX_TEXT, node_failures
from scheduler.framework import Attempt, Failure, Handle, Nomination, ObjectEvent, Plugin, Verb, Write
from scheduler.gang.spec import OF_WORKLOADS, gang_of_pod

EXPLANATIONS = custom(SCHEDULE_EXPLANATION)
MANAGED_BY = {"app.kubernetes.io/managed-by": "koord-scheduler"}
"""Label of the explanations that a scheduler made; others are left alone."""
MAX_MEMBERS = 64
"""Pending members of a gang that are looked at, listed, and made owners of its explanation."""
FAILED_WAIT_SECONDS = 60.0
"""Time without writes after one that failed: the kind may not be installed, or not be allowed."""

_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME = 253


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of ScheduleExplanation."""

    max_objects: Annotated[int, msgspec.Meta(ge=1)] = 100
    """Pods and gangs that are explained at once, shared evenly by the namespaces that have any."""
    writes_per_second: Annotated[int, msgspec.Meta(ge=1)] = 5
    """Explanations that are written or deleted in a second."""
    pending_seconds: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    """Time from the first refusal after which a pod or gang is explained."""
    interval_seconds: Annotated[float, msgspec.Meta(ge=1)] = 10.0
    """Least time between two writes of one explanation."""
    heartbeat_seconds: Annotated[float, msgspec.Meta(ge=1)] = 60.0
    """Time after which an explanation that has not changed is written again, so that it is known to hold."""
    max_nodes: Annotated[int, msgspec.Meta(ge=0)] = 100
    """Names of nodes listed for one reason."""


@dataclass(slots=True, eq=False)
class _Subject:
    """A pending pod or gang."""

    key: Key
    """Of its explanation."""
    question: str
    since: float
    members: dict[str, PodInfo] = field(default_factory=dict)
    """Pending pods by UID."""
    cause: str = ""
    """UID of the pod whose refusal is the subject's."""
    details: list[NodeFailure] = field(default_factory=list)
    detailed_at: float = float("-inf")
    status: dict[str, Any] | None = None
    """As last written, without its time."""
    written_at: float = float("-inf")


class ScheduleExplanations(Plugin[Any]):
    """Writes the explanations."""

    name = "ScheduleExplanation"
    rank = 335  # after Coscheduling has seen a pod, before preemption ends the round of post_filter
    enabled = False
    watches = (EXPLANATIONS,)

    def __init__(self, config: Config, handle: Handle) -> None:
        super().__init__(config, handle)
        self._subjects: dict[Key, _Subject] = {}
        self._made: set[Key] = set()
        """Explanations of schedulers that exist."""
        self._ended: set[Key] = set()
        """Those of them whose pods are pending no more."""
        self._deleted_at: dict[Key, float] = {}
        """When their deletion was last asked for."""
        self._held_until = float("-inf")
        self._now = 0.0

    # Pods that stay pending

    def pod_queued(self, info: PodInfo) -> None:
        """A member that is held before the queue is attempted by none, and is refused all the same."""
        peer: Any = self.handle.peers().get("Coscheduling")
        if peer is not None and not info.outside and peer.gangs.shortage(info.key) is not None:
            self._subject(info, self._now)

    def post_filter(self, attempt: Attempt, spec: Any, failure: Failure) -> Nomination | None:
        """Note why the attempt found no node; a gang's cause is what its first member met, not what its others did."""
        info, now = attempt.pod, attempt.now
        subject = None if attempt.simulated else self._subject(info, now)
        if subject is None:
            return None
        follows = failure.reason is not None and failure.reason.plugin == "Coscheduling"
        recent = now - subject.detailed_at < self.config.interval_seconds
        if subject.cause in subject.members and (follows or recent):
            return None
        if info.uid not in subject.members:
            if follows:
                return None
            # The one that met something is listed, whatever others have to make room for it.
            del subject.members[next(iter(subject.members))]
            subject.members[info.uid] = info
        subject.cause, subject.detailed_at = info.uid, now
        subject.details = node_failures(failure, attempt.snapshot, self.config.max_nodes)
        return None

    def on_object(self, event: ObjectEvent) -> None:
        """An explanation appeared, changed or went."""
        if event.after is not None and _is_ours(event.after):
            self._made.add(event.key)
        else:
            self._made.discard(event.key)
            self._ended.discard(event.key)
            self._deleted_at.pop(event.key, None)

    # Writes

    def leads(self) -> None:
        """Write everything anew."""
        self._held_until = float("-inf")
        self._deleted_at.clear()
        for subject in self._subjects.values():
            subject.status, subject.written_at = None, float("-inf")

    def write_failed(self, write: Write, message: str) -> None:
        """Wait for a while, then write what was not written."""
        if write.resource is not EXPLANATIONS:
            return
        self._held_until = self._now + FAILED_WAIT_SECONDS
        if write.key not in self._made:
            self._ended.discard(write.key)
        subject = self._subjects.get(write.key)
        if subject is not None:
            subject.status = None

    def tick(self, now: float) -> Iterable[Write]:
        """Write what is due, the longest unwritten first, as far as the rate allows."""
        self._now = now
        for subject in list(self._subjects.values()):
            subject.members = {
                uid: info for uid, info in subject.members.items() if self.handle.refusal(uid) is not None
            }
            if not subject.members:
                del self._subjects[subject.key]
                self._ended |= {subject.key} & self._made
        if now < self._held_until:
            return []
        return [write for writes in islice(self._due(now), self.config.writes_per_second) for write in writes]

    def _due(self, now: float) -> Iterator[tuple[Write, ...]]:
        """What to write of each explanation."""
        stored: Mapping[Key, ScheduleExplanation] = self.handle.objects(EXPLANATIONS)
        for key in sorted(self._made - self._subjects.keys()):
            if key in self._ended or self._is_over(stored[key]):
                yield from self._deletion(stored[key], now)
        waiting = self.handle.waiting()
        for subject in sorted(self._subjects.values(), key=lambda each: each.written_at):
            known, quiet = stored.get(subject.key), now - subject.written_at
            if now - subject.since < self.config.pending_seconds or quiet < self.config.interval_seconds:
                continue
            if known is None:
                status = self._status(subject, waiting)
                if status is not None:
                    yield _creation(subject), self._told(subject, status, now)
            elif not _is_ours(known):
                continue
            elif not subject.members.keys() & {each.uid for each in known.metadata.owner_references}:
                # That of an earlier pod by this name, which the garbage collector is about to delete.
                yield from self._deletion(known, now)
            else:
                status = self._status(subject, waiting)
                if status is not None and (status != subject.status or quiet >= self.config.heartbeat_seconds):
                    yield (self._told(subject, status, now),)

    def _told(self, subject: _Subject, status: dict[str, Any], now: float) -> Write:
        subject.status, subject.written_at = status, now
        body = merge_patch({"status": {**status, "lastUpdateTime": rfc3339(now)}})
        return Write(Verb.PATCH_STATUS, EXPLANATIONS, subject.key, body, repeat=False)

    def _deletion(self, known: ScheduleExplanation, now: float) -> Iterator[tuple[Write, ...]]:
        key = Key(known.metadata.namespace, known.metadata.name)
        if now - self._deleted_at.get(key, float("-inf")) >= self.config.interval_seconds:
            self._deleted_at[key] = now
            yield (Write(Verb.DELETE, EXPLANATIONS, key, known.metadata.uid, repeat=False),)

    def _is_over(self, known: ScheduleExplanation) -> bool:
        """Return whether its pods are on nodes. Those that are gone take it with them; others may be another's."""
        owners = [each.uid for each in known.metadata.owner_references]
        return bool(owners) and all(
            uid in self.handle.snapshot.pods and self.handle.refusal(uid) is None for uid in owners
        )

    # Contents

    def _subject(self, info: PodInfo, now: float) -> _Subject | None:
        """What the pod is explained with; None where there is no place for it."""
        if info.stand_in:
            return None
        peer: Any = self.handle.peers().get("Coscheduling")
        gang = gang_of_pod(info.pod) if peer is not None else None
        question = info.key if gang is None else peer.gangs.group_of(info.key) or gang
        # A gang is of its pods' namespace, whatever its name says: nothing is written to any other.
        name = (gang or info.key).removeprefix(f"{info.namespace}/")
        kind = "pod" if gang is None else "podgroup" if name.endswith(OF_WORKLOADS) else "gang"
        key = Key(info.namespace, _object_name(kind, name.removesuffix(OF_WORKLOADS)))
        subject = self._subjects.get(key)
        if subject is None and self._has_place(info.namespace):
            subject = self._subjects[key] = _Subject(key, question.removesuffix(OF_WORKLOADS)[:MAX_TEXT], now)
        if subject is not None and (info.uid in subject.members or len(subject.members) < MAX_MEMBERS):
            subject.members[info.uid] = info
        return subject

    def _has_place(self, namespace: str) -> bool:
        """Return whether one more of the namespace is explained; where all places are taken, one of another's goes."""
        if len(self._subjects) < self.config.max_objects:
            return True
        held = Counter(key.namespace for key in self._subjects)
        richest, most = held.most_common(1)[0]
        if most <= held[namespace] + 1:
            return False
        youngest = max(
            (each for each in self._subjects.values() if each.key.namespace == richest), key=lambda each: each.since
        )
        del self._subjects[youngest.key]
        if youngest.status is not None or youngest.key in self._made:
            self._ended.add(youngest.key)
        return True

    def _status(self, subject: _Subject, waiting: Mapping[str, tuple[PodInfo, Row]]) -> dict[str, Any] | None:
        """The status without its time, every field stated; None where nothing is known yet."""
        members = dict(sorted(subject.members.items(), key=lambda item: item[1].key))
        cause = subject.cause if subject.cause in members else next(iter(members))
        message = (self.handle.refusal(cause) or "")[:MAX_TEXT]
        if not message:
            return None
        names = self.handle.snapshot.names
        held = {uid: waiting[uid][1] for uid in members if uid in waiting}
        promised = {uid: row for uid in members if (row := self._promised_row(uid)) is not None}
        placed = [_placed(members[uid], names[row]) for uid, row in held.items()]
        helped = bool(promised) and members.keys() <= held.keys() | promised.keys()
        domain = DomainExplanation(
            schedulable_after_preemption=helped,
            failed_message=message,
            schedule_explanation=AttemptExplanation(
                failed_message=message, feasible_scheduling_result=placed, node_failed_details=subject.details
            ),
            node_possible_victims=self._victims(promised, names),
        )
        if promised:
            rows = held | promised
            after = [_placed(members[uid], names[row]) for uid, row in sorted(rows.items(), key=lambda item: item[0])]
            explained = AttemptExplanation(schedulable=helped, feasible_scheduling_result=after)
            domain = msgspec.structs.replace(domain, preempt_explanation=explained)
        return {
            "schedulable": False,
            "schedulableAfterPreemption": helped,
            "failedMessage": message,
            "detailedExplanation": [msgspec.to_builtins(domain)],
        }

    def _promised_row(self, uid: str) -> Row | None:
        promise = self.handle.promise(uid)
        return None if promise is None else promise[0]

    def _victims(self, promised: Mapping[str, Row], names: list[str]) -> list[NodeVictims]:
        """Pods that leave for the members, by node."""
        placed = self.handle.snapshot.pods
        victims: dict[str, dict[str, PossibleVictim]] = {}
        for member in promised:
            promise = self.handle.promise(member)
            for uid in sorted(promise[1]) if promise is not None else ():
                placement = placed.get(uid)
                if placement is not None:
                    meta = placement.info.pod.metadata
                    victim = PossibleVictim(namespace=meta.namespace, name=meta.name, uid=uid)
                    victims.setdefault(names[placement.row], {})[uid] = victim
        return [NodeVictims(node_name=node, possible_victims=list(on.values())) for node, on in sorted(victims.items())]


def _creation(subject: _Subject) -> Write:
    owners = [
        OwnerReference(api_version="v1", kind="Pod", name=info.pod.metadata.name, uid=uid)
        for uid, info in subject.members.items()
    ]
    meta = ObjectMeta(
        name=subject.key.name, namespace=subject.key.namespace, labels=MANAGED_BY, owner_references=owners
    )
    body = {
        "apiVersion": EXPLANATIONS.api_version,
        "kind": EXPLANATIONS.kind,
        "metadata": msgspec.to_builtins(meta),
        "spec": msgspec.to_builtins(ScheduleExplanationSpec(question_object_key=subject.question)),
    }
    return Write(Verb.CREATE, EXPLANATIONS, subject.key, body, repeat=False)


def _is_ours(known: ScheduleExplanation) -> bool:
    return known.metadata.labels.items() >= MANAGED_BY.items()


def _placed(info: PodInfo, node: str) -> PlacedPod:
    meta = info.pod.metadata
    return PlacedPod(namespace=meta.namespace, name=meta.name, uid=meta.uid, node_name=node)


def _object_name(kind: str, name: str) -> str:
    """A name for the explanation: readable, or a digest where an annotation names the gang what no object may be."""
    text = f"{kind}.{name}"
    if len(text) <= _LONGEST_NAME and _OBJECT_NAME.fullmatch(text):
        return text
    return f"{kind}.{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
