"""The scheduling framework: the extension points of plugins, and the contract of each.

How to write a plugin
---------------------

A plugin costs one module in `scheduler/plugins/` and one test. The module defines one subclass of `Plugin` and
is found by its file name; a plugin of another distribution is an entry point of the group
`koord.scheduler_plugins`, found by the entry point's name. That name is the plugin's table in the settings
file, `[plugins.<name>]`. Its keys are those of a frozen `msgspec.Struct` called `Config` in the same module
(forbid_unknown_fields, a docstring under each field), given to the constructor as `(config, handle)`.
`Plugin.name` is Koordinator's or the stock scheduler's name of the plugin. Only the methods that a plugin
defines cost anything.

*The unit of work is a column of rows, not a node.* `filter` and `score` get `rows` (a slice or an index array)
and answer one value per row, from the snapshot's columns and from columns of the plugin's own
(`handle.snapshot.column(dtype, fill)`). Rows that hold no node may be among them; their answer is ignored. `column()`
returns a `Column`: read and write its `values`, and read `values` anew on every call, because the array is replaced
when the cluster outgrows it. The row of a removed node is refilled with `fill` and given to the next new node.

*Work is shared by class.* `prepare(pod)` turns what a class of pods asks for into a spec: parsed annotations,
request vectors, compiled selectors. `None` means that the plugin does not concern such pods; none of
its other per-pod points is called for them then. The spec is kept for the class; `handle.invalidate()` throws
all of them away.

*Results are kept per row.* With `Scope.NODE` (the default), a row's filter and score answers may depend on the
class, on that row's columns and on the pods of that row, and on nothing else; they are asked again only for
rows that changed. A plugin that changes a column of its own reports it with `handle.snapshot.touch(row)`. With
`Scope.CLUSTER` they are asked for all rows on every attempt, and may depend on anything.

*State follows pods, not decisions.* `reserve` chooses the pod's exact share of the node and writes it to
`attempt.pod.patch` (annotations); it changes nothing else. Right after, the snapshot holds the pod there and
calls `pod_added(row, info)` on every plugin; a plugin charges its columns there, reading its share from
`info.annotation(...)`, and gives it back in `pod_removed`. A pod bound by another scheduler, a pod assumed here, a
pod found after a restart and a pod removed in a preemption trial all take this one way, so restarts leak
nothing. Both calls may come for any pod in any order of pods; the pair is always balanced.

*Simulated attempts leave no trace.* A descheduler asks the running scheduler where pods would go if others were
gone (`scheduler.simulated_placement`). Such an attempt has `attempt.simulated` set, runs from `prepare` to
`reserve` inside a trial of the snapshot, and is undone: `pod_removed`, then `unreserve` where `reserve` was
called. A plugin that acts at `pre_filter` on earlier calls of `pod_removed`, or undoes at `unreserve` what
`permit` did, leaves that out of simulated attempts.

*Plugins read no clock and do no I/O.* Time is `attempt.now` or an argument (seconds since the epoch). What
should change in the cluster is returned as `Write` values. Watched objects arrive through `on_object`.

*A node may be a last resort.* `avoid` is a filter that yields: rows that it answers are refused as long as another
row passes all filters, and taken where none does. No pod is preempted for what `avoid` alone refuses, and a pod that
is bound on such a row gets an Event with the reasons. A filter of cluster scope that refuses rows only until another
attempt looks at them notes itself in `attempt.unfinished`: no last resort is taken while such rows may be the ones.

Order of one attempt: prepare, pre_filter, restore, filter and avoid, prefer, (post_filter when no row passes) score,
normalize, reserve, [assume], permit, [wait], settle, [wait], pre_bind, bind, post_bind; unreserve in reverse order on
failure after reserve.

Its test
--------

`tests/schedobjects.py` writes nodes and pods as data and gives an engine that runs the plugin under test alone::

    made = engine([node("a", labels={"rack": "1"})], kinds={"avoidrack": AvoidRack}, plugins={"avoidrack": {...}})
    assert rejected(made, pod("p", {"cpu": "1"})) == {"a": ["node(s) in an avoided rack"]}

`kinds` are the plugins by name (all when left out; the queue's order and the binder are always there), `plugins` their
tables as in the settings file. `totals` gives the scores, `drain` attempts all that is pending and binds it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.kube.objects import Node, Pod
from cluster.pods import Binding
from cluster.resources import Key, Patch, Resource
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podcounts import PodCount
from scheduler.cluster_state.podinfo import PodClass, PodInfo
from scheduler.cluster_state.snapshot import Snapshot

S = TypeVar("S")

Bits: TypeAlias = NDArray[np.int64]
"""Why rows are rejected: 0 passes, bit i set means `reasons(spec)[i]`."""

Scores: TypeAlias = NDArray[np.int64]
"""Worth of each row, 0 to MAX_SCORE after `normalize`."""

MAX_SCORE = 100


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason why a pod is not placed, in words that fit "3 Insufficient cpu".

    `resolvable` is False when removing pods from the node cannot help; preemption leaves such nodes alone.
    """

    text: str
    resolvable: bool = True
    plugin: str = ""


class Scope(Enum):
    """Extent of the state that a plugin's answer for a row depends on."""

    NODE = "node"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Wait:
    """Permit's "not yet": the pod keeps its share for at most this long. Only `settle` has writes made meanwhile."""

    seconds: float
    writes: tuple["Write", ...] = ()


class Verb(StrEnum):
    """Operation of a `Write`."""

    BIND = "bind"
    CREATE = "create"
    PATCH = "patch"
    PATCH_STATUS = "patch-status"
    DELETE = "delete"
    EVICT = "evict"


@dataclass(frozen=True, slots=True)
class Write:
    """A change that a plugin wants made in the cluster; the loop makes it.

    `body` is the object for CREATE, a `Patch` for the patches, the `Binding` for BIND, and the victim's UID for
    DELETE and EVICT (a pod that took over the name is left alone).
    """

    verb: Verb
    resource: Resource[Any]
    key: Key
    body: Patch | Binding | Mapping[str, Any] | str | None = None
    repeat: bool = True
    """Made again when it failed; False where the plugin decides anew (see `Plugin.write_failed`)."""
    continues: bool = False
    """Of a binding's writes: holds for the object as the write before it left it, not for the version in `body`."""


@dataclass(frozen=True, slots=True)
class WriteChain:
    """Writes to make in order; the first that fails ends the chain, and pod `uid`, for which they are, is told."""

    uid: str
    writes: tuple[Write, ...]


class Action(StrEnum):
    """Kind of change of an object."""

    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """A change of a watched object. `before` is None on ADD, `after` is None on DELETE."""

    resource: Resource[Any]
    action: Action
    key: Key
    before: Any
    after: Any

    @property
    def kind(self) -> str:
        """`plural/action`, for example `nodes/add`: what `Plugin.requeue_on` lists."""
        return f"{self.resource.plural}/{self.action}"


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt to place one pod."""

    pod: PodInfo
    snapshot: Snapshot
    now: float
    """Seconds since the epoch."""
    restored: Mapping[Row, Sequence["Restored"]] = field(default_factory=dict)
    """Shares that reservations hold for this pod, by row (see `Plugin.restore`)."""
    memo: dict[str, Any] = field(default_factory=dict)
    """Scratch between points of this attempt, by plugin name."""
    simulated: bool = False
    """Nothing will be bound: see "Simulated attempts" above."""
    unfinished: set[str] = field(default_factory=set)
    """Plugins whose filter leaves a part of its work to another attempt."""
    last_resort: bool = False
    """Rows that are avoided are looked at too: no other passed."""
    possible: NDArray[np.bool_] | None = None
    """bool[rows_used]: rows that passed so far, while a filter of cluster scope is asked; the others do not matter."""

    def requested(self, rows: Rows) -> NDArray[np.int64]:
        """Amounts taken on the rows as this pod sees it, int64[rows, width]: restored shares are free to it."""
        taken: NDArray[np.int64] = self.snapshot.requested[rows]
        return _less_restored(self, rows, taken) if self.restored else taken

    def counted(self, count: PodCount) -> NDArray[np.int64]:
        """Matching pods per row as this pod sees them: a reservation's stand-in keeps the place of its owner."""
        return self.snapshot.counts.without(count, self.holders)

    @property
    def holders(self) -> frozenset[str]:
        """UIDs of the stand-ins whose shares this pod may use."""
        return frozenset(share.holder.uid for shares in self.restored.values() for share in shares)


@dataclass(frozen=True, slots=True, eq=False)
class Restored:
    """A placed pod (a reservation's stand-in) whose share the attempted pod may use.

    `remaining` is what of the share is unused, int64[width of the snapshot] in its resource columns.
    """

    holder: PodInfo
    remaining: NDArray[np.int64]


def _less_restored(attempt: Attempt, rows: Rows, taken: NDArray[np.int64]) -> NDArray[np.int64]:
    numbers = np.arange(attempt.snapshot.rows_used)[rows]
    position = {int(row): index for index, row in enumerate(numbers)}
    taken = taken.copy()
    for row, shares in attempt.restored.items():
        index = position.get(row)
        if index is not None:
            for share in shares:
                taken[index, : share.remaining.shape[0]] -= share.remaining
    return taken


@dataclass(frozen=True, slots=True)
class Nomination:
    """PostFilter's answer: the node that will fit once the victims are gone; "" where there is only a message."""

    node: str
    victims: tuple[PodInfo, ...] = ()
    writes: tuple[Write, ...] = ()
    """Made in order once the nomination is written, as long as each succeeds."""
    message: str = ""
    others: tuple[tuple[PodInfo, str], ...] = ()
    """Pods of the same gang with the nodes that the victims make room for them on."""
    last: bool = False
    """No further plugin is asked."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Reasons why an attempt found no row. `bits[row]` indexes `reasons`; a pod-wide `reason` stands alone."""

    reasons: tuple[Reason, ...]
    bits: Bits
    reason: Reason | None = None

    def resolvable_rows(self, snapshot: Snapshot) -> NDArray[np.intp]:
        """Live rows on which removing pods might help."""
        fixed = sum(1 << index for index, reason in enumerate(self.reasons) if not reason.resolvable)
        rows = snapshot.all_rows
        return np.flatnonzero(snapshot.live[rows] & ((self.bits[rows] & fixed) == 0) & (self.bits[rows] != 0))


class Handle(Protocol):
    """Interface of the scheduler for its plugins."""

    @property
    def snapshot(self) -> Snapshot:
        """Nodes and placed pods."""

    def invalidate(self) -> None:
        """Forget every spec and every cached result: something changed that they depend on."""

    def forget(self, classes: Iterable[PodClass]) -> None:
        """Forget specs and cached results of some classes."""

    def objects(self, resource: Resource[Any]) -> Mapping[Key, Any]:
        """The watched objects of a kind (see `Plugin.watches`)."""

    def waiting(self) -> Mapping[str, tuple[PodInfo, Row]]:
        """Pods waiting at Permit by UID, with the row they hold."""

    def pending(self) -> Iterable[PodInfo]:
        """Pods in the queue, in no order."""

    def refusal(self, uid: str) -> str | None:
        """The sentence with which a pending pod was refused last, "" before the first; None when it is not pending."""

    def allow(self, uid: str, plugin: str) -> None:
        """Let a waiting pod go on as far as `plugin` is concerned."""

    def reject(self, uid: str, reason: Reason) -> None:
        """Give up a waiting pod: it is unreserved and requeued with the reason."""

    def activate(self, uids: Iterable[str]) -> None:
        """Bring pending pods to the active queue, whatever made them wait."""

    def activate_first(self, uids: Iterable[str]) -> None:
        """Bring pending pods to the active queue, before those that `sort_key` tells apart by their arrival only."""

    def enqueue(self, info: PodInfo) -> None:
        """Queue a stand-in pod that no API object backs, or renew it; `withdraw` takes it out."""

    def withdraw(self, uid: str) -> None:
        """Forget a stand-in pod, queued or placed."""

    def nominated(self, row: Row) -> Iterable[PodInfo]:
        """Pods that wait for victims to leave this row."""

    def avoided(self, attempt: Attempt, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which of the rows are a last resort for the pod (see `Plugin.avoid`)."""

    def promise(self, uid: str) -> tuple[Row, frozenset[str]] | None:
        """The row promised to a pod and the UIDs of its victims, as far as they are known; None without a promise."""

    def best_row(self, attempt: Attempt) -> tuple[Row | None, Failure]:
        """The best row of the snapshot as it is now, or the reasons against every row."""

    def fits(self, attempt: Attempt, row: Row) -> bool:
        """Return whether every filter passes the row of the snapshot as it is now, nominated pods included.

        For a trial: change the snapshot in `snapshot.trial()`, then ask.
        """

    def peers(self) -> Mapping[str, "Plugin[Any]"]:
        """The profile's plugins by name, for the few that answer one another (devices and NUMA)."""


class NoConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a plugin that has none."""


Route: TypeAlias = Callable[..., Any]
"""Answers a GET of a plugin's state with a value that encodes to JSON; path parameters come as arguments."""


class Plugin(Generic[S]):
    """Base of all plugins: every point does nothing. Override what is needed (see the module docstring)."""

    name: ClassVar[str] = ""
    rank: ClassVar[int] = 500
    """Lower comes first at every point. Stock filters have 100 to 290, binders 900."""
    weight: ClassVar[int] = 1
    """Factor of the score unless the profile says otherwise."""
    enabled: ClassVar[bool] = True
    """False leaves the plugin out of a profile that does not enable it."""
    scope: ClassVar[Scope] = Scope.NODE
    requeue_on: ClassVar[frozenset[str]] = frozenset()
    """Events (`nodes/add`, `pods/delete`, ...) that may place a pod which this plugin rejected."""
    watches: ClassVar[tuple[Resource[Any], ...]] = ()
    """Kinds beside pods and nodes whose objects the plugin needs."""
    shares: ClassVar[tuple[Resource[Any], ...]] = ()
    """Kinds of `watches` whose objects say what was given: read anew, as pods are, on taking the lead."""

    def __init__(self, config: Any, handle: Handle) -> None:
        self.config = config
        self.handle = handle

    # Observer of the snapshot

    def node_changed(self, row: Row, node: Node) -> None:
        """A node appeared or its object changed."""

    def node_removed(self, row: Row) -> None:
        """The row holds no node any more."""

    def pod_added(self, row: Row, info: PodInfo) -> None:
        """A pod holds its share of the node, as its annotations say."""

    def pod_removed(self, row: Row, info: PodInfo) -> None:
        """A pod gave its share back."""

    def on_object(self, event: ObjectEvent) -> None:
        """A watched object changed."""

    def pod_queued(self, info: PodInfo) -> None:
        """A pending pod of ours appeared or its object changed."""

    def pod_forgotten(self, info: PodInfo) -> None:
        """A pending pod of ours was deleted before it was placed."""

    def pod_finished(self, pod: Pod) -> None:
        """A pod, ours or not, has succeeded or failed and holds nothing any more; called again on every update."""

    def pod_deleted(self, pod: Pod) -> None:
        """A pod's object is gone, finished or not."""

    def tick(self, now: float) -> Iterable[Write]:
        """About once a second: let things expire, report state."""
        return ()

    def leads(self) -> None:
        """This process leads from here on: what it wrote before, others may have overwritten since."""

    def write_failed(self, write: Write, message: str) -> None:
        """A write of some plugin failed; it is made again by the loop unless the object changed or refuses it."""

    # Queue

    def sort_key(self, info: PodInfo, queued_at: float) -> tuple[Any, ...]:
        """Smallest first. Exactly one enabled plugin defines it.

        `queued_at` is in seconds; -inf for a pod that goes before its equals.
        """
        raise NotImplementedError

    def pre_enqueue(self, info: PodInfo) -> Reason | None:
        """A reason keeps the pod out of the active queue until an event of `requeue_on` or `activate`."""
        return None

    def queue_hint(self, info: PodInfo, event: ObjectEvent) -> bool:
        """Return whether an event listed in `requeue_on` may place this pod, which this plugin rejected."""
        return True

    def kin(self, info: PodInfo) -> Iterable[str]:
        """UIDs of pods that share the pod's fate: what it gives back is no news to them."""
        return ()

    def next_pod(self) -> str | None:
        """UID of the pending pod to attempt next, out of the queue's order (a gang's next member).

        Asked again when that pod cannot be attempted (it is gated, say), so it must not be named twice in a row.
        """
        return None

    # One attempt

    def prepare(self, info: PodInfo) -> S | None:
        """Return the spec of this class of pods; None when the plugin does not concern it."""
        return cast(S, ())

    def pre_filter(self, attempt: Attempt, spec: S) -> Reason | None:
        """A reason rejects the pod on all nodes at once. Called on every attempt."""
        return None

    def restore(self, attempt: Attempt, spec: S) -> Mapping[Row, Sequence[Restored]]:
        """Shares of nodes that are held for this pod. Called on every attempt; touch rows that change."""
        return {}

    def reasons(self, spec: S) -> tuple[Reason, ...]:
        """Reasons by bit of `filter` and `avoid`, for this spec."""
        return ()

    def filter(self, attempt: Attempt, spec: S, rows: Rows) -> Bits | None:
        """Reason bits per row, int64[rows]; None when all pass."""
        return None

    def avoid(self, attempt: Attempt, spec: S, rows: Rows) -> Bits | None:
        """Reason bits of rows that are a last resort, int64[rows]; None when there are none. Always of `Scope.NODE`."""
        return None

    def prefer(self, attempt: Attempt, spec: S) -> Sequence[Row]:
        """Rows to try first, best first: the first that passes all filters is taken without scoring."""
        return ()

    def post_filter(self, attempt: Attempt, spec: S, failure: Failure) -> Nomination | None:
        """Called in order when no row passes; the first nomination with a node or victims ends it."""
        return None

    def pre_score(self, attempt: Attempt, spec: S, feasible: NDArray[np.bool_]) -> None:
        """Before scoring, with bool[rows_used] of the rows that passed. Called on every attempt."""

    def score(self, attempt: Attempt, spec: S, rows: Rows) -> Scores | None:
        """Worth per row, int64[rows]; 0 to 100 unless `normalize` is defined; None is 0 everywhere."""
        return None

    def normalize(self, attempt: Attempt, spec: S, scores: Scores, feasible: NDArray[np.bool_]) -> Scores:
        """Scores of all rows (int64[rows_used]) brought to 0..100 over the feasible ones."""
        return scores

    def reserve(self, attempt: Attempt, spec: S, row: Row) -> Reason | None:
        """Choose the pod's share of the node into `attempt.pod.patch`; a reason gives the row up."""
        return None

    def unreserve(self, attempt: Attempt, spec: S, row: Row) -> None:
        """The placement was given up; `pod_removed` was called already."""

    def permit(self, attempt: Attempt, spec: S, row: Row) -> Wait | Reason | None:
        """Hold the placed pod (Wait), refuse it (Reason) or let it go on (None)."""
        return None

    def settle(self, attempt: Attempt, spec: S, row: Row) -> Wait | Reason | None:
        """Every plugin let the pod go: begin what others must finish before it is bound, and hold it until then."""
        return None

    def pre_bind(self, attempt: Attempt, spec: S, row: Row) -> Reason | Sequence[Write]:
        """Writes to make before the binding, or a reason to give up. Annotations belong in `pod.patch`."""
        return ()

    def bind(self, attempt: Attempt, spec: S, row: Row) -> Sequence[Write] | None:
        """The writes that bind the pod; None leaves it to the next plugin."""
        return None

    def post_bind(self, attempt: Attempt, spec: S, row: Row) -> Iterable[Write]:
        """The pod is bound."""
        return ()

    # Diagnosis

    def routes(self) -> Mapping[str, Route]:
        """State endpoints: path below `/apis/v1/plugins/<name>/` (`node/{name}`) to its handler."""
        return {}


def scaled(scores: Scores, feasible: NDArray[np.bool_], *, reverse: bool = False) -> Scores:
    """The stock normalisation: `score * 100 / max over feasible`, integer; `reverse` gives 100 minus it.

    All zero stays zero (or becomes 100 when reversed).
    """
    chosen = scores[feasible]
    peak = int(chosen.max()) if chosen.size else 0
    if peak == 0:
        return np.full_like(scores, MAX_SCORE) if reverse else scores
    share = scores * MAX_SCORE // peak
    return MAX_SCORE - share if reverse else share
