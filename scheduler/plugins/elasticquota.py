"""ElasticQuota: pods within what their quota may use at present: its own minimum and what others lend.

`scheduler.quota` divides; this plugin counts pods into it, turns away those beyond the limit with the figures,
preempts inside a quota that is full, and reports each quota's state.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from api.crds import ELASTIC_QUOTA
from api.crds import ElasticQuota as ElasticQuotaObject
from api.kube.meta import ObjectMeta
from api.kube.objects import Node
from api.kube.resources import CPU, MEMORY, Resources, add, format_resources, subtract
from api.kube.times import epoch_seconds
from api.protocol import LABEL_PREEMPTION_POLICY, LABEL_QUOTA_NAME, LABEL_QUOTA_PREEMPTIBLE
from cluster.resources import PODS, Key, custom, merge_patch
from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.nodeinfo import allocatable
from scheduler.cluster_state.podinfo import PodInfo
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
    Write,
)
from scheduler.preemption import BUDGETS, least_harmful, victims_on
from scheduler.quota.admission import admit
from scheduler.quota.claims import QuotaClaims
from scheduler.quota.eviction import OveruseClock, QuotaPod, may_preempt, to_revoke
from scheduler.quota.forest import Member, QuotaForest
from scheduler.quota.spec import QUOTA, quota_spec
from scheduler.quota.tree import DEFAULT, ROOT, SYSTEM, PodUse, QuotaSpec, QuotaTree

QUOTAS = custom(ELASTIC_QUOTA)
REFUSED = QUOTA + "refused"
"""Annotation of a quota that does not count, with the reason."""
UNBOUNDED = (2**63 - 1) // 5


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of ElasticQuota."""

    delay_evict_seconds: float = 120.0
    """A quota has to be over its runtime for this long before pods are revoked."""
    monitor_all_quotas: bool = False
    """Revoke pods of quotas that use more than their runtime."""
    default_quota_max: dict[str, int] = msgspec.field(default_factory=lambda: {CPU: UNBOUNDED, MEMORY: UNBOUNDED})
    """Maximum of the quota of pods that belong to no other."""
    system_quota_max: dict[str, int] = msgspec.field(default_factory=lambda: {CPU: UNBOUNDED, MEMORY: UNBOUNDED})
    """Maximum of the system quota."""
    quota_group_namespace: str = "koordinator-system"
    """Where the reserved quotas live."""
    create_reserved_quotas: bool = True
    """Make the root, default and system quota where they are missing."""
    enable_check_parent_quota: bool = False
    """Hold every ancestor's limit as well."""
    enable_runtime_quota: bool = True
    """The limit is the runtime; otherwise the maximum."""
    enable_min_quota_scale: bool = True
    """Shrink minimums in proportion when the total cannot honour them."""
    disable_default_quota_preemption: bool = True
    """No pod is preempted inside the default quota."""
    multi_quota_tree: bool = False
    """Keep trees with different ids apart."""
    guarantee_usage: bool = False
    """Never lend what is in use."""
    disable_default_quota: bool = False
    """Pods without a quota are not counted at all."""


class ElasticQuota(Plugin[tuple[()]]):
    """Admits by quota; see the module docstring."""

    name = "ElasticQuota"
    rank = 370
    requeue_on = frozenset(
        {
            "pods/delete",
            "nodes/add",
            "nodes/update",
            "elasticquotas/add",
            "elasticquotas/update",
            "elasticquotas/delete",
        }
    )
    watches = (QUOTAS, BUDGETS)

    def __init__(self, config: Config, handle: Handle) -> None:
        super().__init__(config, handle)
        self.forest = QuotaForest(
            multiple_trees=config.multi_quota_tree,
            scale_minimums=config.enable_min_quota_scale,
            guarantee_usage=config.guarantee_usage,
            default_quota=not config.disable_default_quota,
            open_namespace=config.quota_group_namespace,
        )
        self.forest.apply(QuotaSpec(DEFAULT, {}, config.default_quota_max))
        self.forest.apply(QuotaSpec(SYSTEM, {}, config.system_quota_max))
        self._claims = QuotaClaims(config.quota_group_namespace)
        self._in_use = False
        """A quota exists; before, no pod is ever turned away."""
        self._offered: dict[Row, Resources] = {}
        self._cluster: Resources = {}
        self._queued: set[str] = set()
        """Pending pods: they keep asking when they lose their place."""
        self._leaving: set[str] = set()
        """Placed pods that were removed: gone, unless only in a trial."""
        self._clocks: dict[str, OveruseClock] = {}
        self._reported: dict[str, Mapping[str, Any]] = {}
        self._created = not config.create_reserved_quotas

    # Observer

    def node_changed(self, row: Row, node: Node) -> None:
        """The cluster's total changes with its nodes."""
        offered = allocatable(node)
        self._cluster = add(subtract(self._cluster, self._offered.get(row, {})), offered)
        self._offered[row] = offered
        self.forest.set_cluster(self._cluster)

    def node_removed(self, row: Row) -> None:
        """The node's share is gone."""
        self._cluster = subtract(self._cluster, self._offered.pop(row, {}))
        self.forest.set_cluster(self._cluster)

    def pod_queued(self, info: PodInfo) -> None:
        """A pending pod asks for quota; a reservation's stand-in does not, its consumers will."""
        if info.stand_in:
            return
        self._queued.add(info.uid)
        self.forest.put(info.uid, _member(info, assigned=info.uid in self.handle.snapshot.pods))

    def pod_forgotten(self, info: PodInfo) -> None:
        """A pending pod asks no more."""
        self._queued.discard(info.uid)
        self.forest.drop(info.uid)

    def pod_added(self, row: Row, info: PodInfo) -> None:
        """A pod uses quota."""
        if info.stand_in:
            return
        if info.pod.spec.node_name:
            self._queued.discard(info.uid)
        self._leaving.discard(info.uid)
        self.forest.put(info.uid, _member(info, assigned=True))

    def pod_removed(self, row: Row, info: PodInfo) -> None:
        """A pod uses none any more; whether it still asks shows before the next attempt."""
        if info.stand_in:
            return
        # A pod deleted while its binding is under way is forgotten as pending before it is removed.
        if info.uid not in self.forest:
            return
        self.forest.assign(info.uid, False)
        if info.uid not in self._queued:
            self._leaving.add(info.uid)

    def on_object(self, event: ObjectEvent) -> None:
        """A quota changed."""
        if event.resource.kind != QUOTAS.kind:
            return
        name = event.key.name
        before = self._claims.owner(name)
        if event.action is Action.DELETE:
            self._claims.drop(event.key)
        else:
            self._claims.put(event.key, event.after)
        owner = self._claims.owner(name)
        if owner is None or owner != before:
            self._reported.pop(name, None)
            self._clocks.pop(name, None)
        if owner is None:
            self._forget(name)
        elif name != ROOT:
            self._adopt(self._claims.quota(owner))
        if not self._in_use and event.key.name not in (ROOT, DEFAULT, SYSTEM):
            self._in_use = True
            self.handle.invalidate()

    def leads(self) -> None:
        """Make and state everything anew."""
        self._created = not self.config.create_reserved_quotas
        self._reported.clear()

    def tick(self, now: float) -> Iterable[Write]:
        """Make what is missing, say what has changed, revoke what is overdue."""
        self._settle()
        writes = [*self._reserved_quotas()]
        if self._in_use:
            writes.extend(self._status_writes())
            writes.extend(self._refusals())
            if self.config.monitor_all_quotas and self.config.enable_runtime_quota:
                writes.extend(self._revocations(now))
        return writes

    # Queue and attempt

    def queue_hint(self, info: PodInfo, event: ObjectEvent) -> bool:
        """A pod that goes makes room only in its own tree."""
        if event.resource.kind != PODS.kind or event.before is None:
            return True
        mine = self.forest.of(info.uid)
        labels, namespace = event.before.metadata.labels, event.before.metadata.namespace
        name = self.forest.resolve(namespace, labels.get(LABEL_QUOTA_NAME, ""))
        return mine is None or name is None or name in mine[0]

    def prepare(self, info: PodInfo) -> tuple[()] | None:
        """Nothing to say until there are quotas."""
        return () if self._in_use and not info.stand_in else None

    def pre_filter(self, attempt: Attempt, spec: tuple[()]) -> Reason | None:
        """Turn away what exceeds the quota, with every figure."""
        if not attempt.simulated:
            self._settle()
        found = self.forest.of(attempt.pod.uid)
        unsettled = attempt.simulated and attempt.pod.uid in self._leaving
        if unsettled or (found is None and not self.config.disable_default_quota):
            self.forest.put(attempt.pod.uid, _member(attempt.pod, assigned=False))
            if attempt.simulated:
                self._leaving.add(attempt.pod.uid)
            found = self.forest.of(attempt.pod.uid)
        sentence = self._denied(*found) if found is not None else None
        return Reason(sentence) if sentence else None

    def post_filter(self, attempt: Attempt, spec: tuple[()], failure: Failure) -> Nomination | None:
        """Make room inside the pod's own quota, only where the quota is the reason."""
        found = self.forest.of(attempt.pod.uid)
        if failure.reason is None or failure.reason.plugin != self.name or found is None:
            return None
        policy = attempt.pod.labels.get(LABEL_PREEMPTION_POLICY, attempt.pod.pod.spec.preemption_policy)
        if policy == "Never" or self._victims_leaving(attempt.pod):
            return None
        tree, name, use = found
        me = _quota_pod(attempt.pod, name, use)
        rows = {
            placement.row
            for uid in tree.quota(name).pods
            if (placement := self.handle.snapshot.pods.get(uid)) is not None and self._may_preempt(me, placement.info)
        }
        budgets = tuple(self.handle.objects(BUDGETS).values())
        candidates = [
            victims_on(
                attempt,
                row,
                budgets,
                fits=lambda tried, at: self._denied(tree, name, use) is None and self.handle.fits(tried, at),
                may_go=lambda victim: self._may_preempt(me, victim),
            )
            for row in sorted(rows)
        ]
        able = [candidate for candidate in candidates if candidate is not None]
        if not able:
            return None
        chosen = least_harmful(able)
        node = attempt.snapshot.names[chosen.row]
        return Nomination(
            node,
            chosen.victims,
            tuple(self._removals(chosen.victims)),
            f"quota {name}: {len(chosen.victims)} victim(s) on {node} make room.",
        )

    def post_bind(self, attempt: Attempt, spec: tuple[()], row: Row) -> Iterable[Write]:
        """The pod does not return to the queue."""
        self._queued.discard(attempt.pod.uid)
        return ()

    # Diagnosis

    def routes(self) -> Mapping[str, Route]:
        """Summaries of all quotas, or of one with its pods."""
        return {"quotas": self._summaries, "quotas/{name}": self.summary, "quota/{name}": self.summary}

    def summary(self, name: str) -> dict[str, Any]:
        """Every figure of a quota. LookupError for an unknown name."""
        spec = self.forest.specs().get(name)
        if spec is None:
            raise LookupError(f"no quota {name}")
        for tree, each in self.forest.quotas():
            if each.name == name:
                return _summary(tree, each) | {"podCache": self._pod_cache(tree, name)}
        raise LookupError(f"no quota {name}")

    def _summaries(self) -> dict[str, Any]:
        return {spec.name: _summary(tree, spec) for tree, spec in self.forest.quotas()}

    def _pod_cache(self, tree: QuotaTree, name: str) -> dict[str, Any]:
        pods = tree.quota(name).pods
        return {uid: {"isAssigned": use.assigned, "resource": dict(use.request)} for uid, use in pods.items()}

    # Internals

    def _forget(self, name: str) -> None:
        """The quota is gone; the reserved ones fall back to the settings."""
        reserved = {DEFAULT: self.config.default_quota_max, SYSTEM: self.config.system_quota_max}
        if name in reserved:
            self.forest.apply(QuotaSpec(name, {}, reserved[name]))
        elif name != ROOT:
            self.forest.remove(name)

    def _adopt(self, quota: ElasticQuotaObject) -> None:
        """Take a quota over, with what its namespace may say: a parent that consents, totals by administrators."""
        spec = quota_spec(quota)
        open_namespace = self.config.quota_group_namespace
        parent = self.forest.specs().get(spec.parent)
        if spec.namespace != open_namespace:
            spec = replace(spec, total=None, apart=False)
            if parent is not None and not self.forest.consents(parent, spec.namespace):
                spec = replace(spec, parent=ROOT)
        self.forest.apply(spec)

    def _settle(self) -> None:
        """Forget pods that were removed for good; trials have put theirs back by then."""
        for uid in self._leaving:
            self.forest.drop(uid)
        self._leaving.clear()

    def _denied(self, tree: QuotaTree, name: str, use: PodUse) -> str | None:
        config: Config = self.config
        denial = admit(
            tree,
            name,
            use,
            by_runtime=config.enable_runtime_quota,
            check_parents=config.enable_check_parent_quota,
        )
        return denial.sentence() if denial is not None else None

    def _may_preempt(self, me: QuotaPod, victim: PodInfo) -> bool:
        found = self.forest.of(victim.uid)
        return found is not None and may_preempt(
            me,
            _quota_pod(victim, found[1], found[2]),
            spare_default=self.config.disable_default_quota_preemption,
        )

    def _victims_leaving(self, info: PodInfo) -> bool:
        """Return whether the node promised to the pod still waits for victims of the same quota to go."""
        promise = self.handle.promise(info.uid)
        mine = self.forest.of(info.uid)
        if promise is None or mine is None:
            return False
        row, victims = promise
        if victims:
            return any(uid in self.handle.snapshot.pods for uid in victims)
        for resident in self.handle.snapshot.residents[row].values():
            theirs = self.forest.of(resident.uid)
            leaving = resident.pod.metadata.deletion_timestamp is not None
            if leaving and resident.priority < info.priority and theirs is not None and theirs[1] == mine[1]:
                return True
        return False

    def _removals(self, victims: Iterable[PodInfo]) -> Iterable[Write]:
        waiting = self.handle.waiting()
        for victim in victims:
            if victim.uid in waiting:
                self.handle.reject(victim.uid, Reason("preempted inside its quota", plugin=self.name))
            else:
                yield Write(Verb.DELETE, PODS, Key(victim.namespace, victim.pod.metadata.name), victim.uid)

    def _reserved_quotas(self) -> Iterable[Write]:
        if self._created:
            return
        self._created = True
        known = {key.name for key in self.handle.objects(QUOTAS)}
        bodies = {
            ROOT: ({QUOTA + "is-parent": "true", QUOTA + "allow-lent-resource": "false"}, {}),
            DEFAULT: ({QUOTA + "parent": ROOT}, self.config.default_quota_max),
            SYSTEM: ({QUOTA + "parent": ROOT}, self.config.system_quota_max),
        }
        for name, (labels, maximum) in bodies.items():
            if name not in known:
                meta = ObjectMeta(name=name, namespace=self.config.quota_group_namespace, labels=labels)
                body = {
                    "apiVersion": QUOTAS.api_version,
                    "kind": QUOTAS.kind,
                    "metadata": msgspec.to_builtins(meta),
                    "spec": {"max": format_resources(maximum)},
                }
                yield Write(Verb.CREATE, QUOTAS, Key(self.config.quota_group_namespace, name), body)

    def _status_writes(self) -> Iterable[Write]:
        for tree, spec in self.forest.quotas():
            key = Key(spec.namespace, spec.name)
            if self._claims.owner(spec.name) != key:
                continue
            body = _status(tree, spec)
            if self._reported.get(spec.name) != body:
                self._reported[spec.name] = body
                yield Write(Verb.PATCH, QUOTAS, key, merge_patch(body))

    def _refusals(self) -> Iterable[Write]:
        """Say on quotas that share a name with another which one counts."""
        for key, why in self._claims.refused().items():
            shown = self._claims.quota(key).metadata.annotations.get(REFUSED, "")
            if shown != why and self._reported.get(str(key)) != {REFUSED: why}:
                self._reported[str(key)] = {REFUSED: why}
                yield Write(Verb.PATCH, QUOTAS, key, merge_patch({"metadata": {"annotations": {REFUSED: why or None}}}))

    def _revocations(self, now: float) -> Iterable[Write]:
        for tree, spec in self.forest.quotas():
            if spec.name in (SYSTEM, ROOT):
                continue
            quota = tree.quota(spec.name)
            clock = self._clocks.setdefault(spec.name, OveruseClock(self.config.delay_evict_seconds))
            if not clock.due(quota.used, quota.runtime, now):
                continue
            placed = [
                _quota_pod(placement.info, spec.name, use)
                for uid, use in quota.pods.items()
                if use.assigned and (placement := self.handle.snapshot.pods.get(uid)) is not None
            ]
            for pod in to_revoke(quota.used, quota.runtime, placed):
                info = self.handle.snapshot.pods[pod.key].info
                yield Write(Verb.EVICT, PODS, Key(info.namespace, info.pod.metadata.name), info.uid)


def _member(info: PodInfo, *, assigned: bool) -> Member:
    firm = info.labels.get(LABEL_QUOTA_PREEMPTIBLE) == "false"
    use = PodUse(info.requests, assigned, preemptible=not firm)
    return Member(info.namespace, info.labels.get(LABEL_QUOTA_NAME, ""), use)


def _quota_pod(info: PodInfo, quota: str, use: PodUse) -> QuotaPod:
    start = epoch_seconds(info.pod.status.start_time or info.pod.metadata.creation_timestamp) or 0.0
    return QuotaPod(info.uid, quota, info.priority, start, use.request, use.preemptible)


def _status(tree: QuotaTree, spec: QuotaSpec) -> dict[str, Any]:
    quota = tree.quota(spec.name)
    figures = {
        "runtime": quota.runtime,
        "request": quota.request,
        "child-request": quota.child_request,
        "non-preemptible-used": quota.firm_used,
    }
    texts = {QUOTA + name: _json(amounts) for name, amounts in figures.items()}
    return {"metadata": {"annotations": texts}, "status": {"used": format_resources(quota.used)}}


def _json(amounts: Mapping[str, int]) -> str:
    return msgspec.json.encode(format_resources(amounts)).decode()


def _summary(tree: QuotaTree, spec: QuotaSpec) -> dict[str, Any]:
    quota = tree.quota(spec.name)
    keys = spec.maximum
    return {
        "name": spec.name,
        "parentName": spec.parent,
        "isParent": spec.is_parent,
        "allowLentResource": spec.lends,
        "tree": spec.tree,
        "max": dict(spec.maximum),
        "min": dict(spec.minimum),
        "autoScaleMin": quota.scaled_minimum,
        "used": quota.used,
        "nonPreemptibleUsed": quota.firm_used,
        "request": quota.request,
        "sharedWeight": {key: spec.weight.get(key, amount) for key, amount in keys.items()},
        "runtime": quota.runtime,
        "childRequest": quota.child_request,
        "allocated": {key: tree.allocated(quota, key) for key in keys},
        "guaranteed": {key: tree.guaranteed(quota, key) for key in keys},
        "selfUsed": quota.self_used,
        "selfRequest": quota.self_request,
    }
