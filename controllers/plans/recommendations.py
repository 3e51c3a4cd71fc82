"""Recommendations: requests of each workload's containers, and in an annotation bounds, limits and replicas."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec

from api.crds import Recommendation, WorkloadProfile
from api.crds.analysis import (
    ContainerRecommendation,
    PodRecommendation,
    RecommendationSpec,
    RecommendationStatus,
    RecommendationTarget,
    WorkloadReference,
)
from api.kube.cpu_burst import BUSY_SHARE
from api.kube.meta import Condition, ObjectMeta
from api.kube.resources import CPU, MEMORY, format_resources
from api.kube.selectors import label_selector_matches
from api.kube.times import epoch_seconds, rfc3339
from api.kube.workload import Workload, workload_named
from api.protocol import ANNOTATION_ADVICE
from cluster.resources import Key, Resource
from controllers.kinds import RECOMMENDATION, WORKLOAD_PROFILE
from controllers.recommend import replicas
from controllers.recommend.advice import Advice, ContainerAdvice, Target, advice_of, advise
from controllers.recommend.estimates import RecommendSettings
from controllers.recommend.observed import WorkloadUsage
from controllers.recommend.outlook import ObservedUsage
from controllers.recommend.replicas import ReplicaSettings
from controllers.recommend.report import LOW_CONFIDENCE, Amounts, Row, why_requests
from controllers.runtime.controller import Controller, ControllerSettings
from controllers.runtime.view import AnyProjection, View
from controllers.runtime.writes import Write, Writes, create, delete, kind_name, patch

MANAGED_BY = {"app.kubernetes.io/managed-by": "koord-manager"}
"""Label of the objects that this controller made; of others it writes the status and the annotation alone."""
CHANGED = 0.1
"""Relative change of an amount from which it is published anew."""
CURED_LEAST_SECONDS = 600.0
"""Loss a day that a larger request cures, from which it is a reason to publish anew."""
SURE_DAYS = 1.0
"""Confidence from which what was found here replaces what was published before a restart."""


class RecommendationSettings(ControllerSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of Recommendations."""

    enabled: bool = False
    """Publish recommendations."""
    create: bool = True
    """Make one for each workload; without it only those that others made get a status."""
    publish_seconds: Annotated[float, msgspec.Meta(ge=60)] = 3600.0
    """Least time between two writes of one object."""
    keep_seconds: Annotated[float, msgspec.Meta(ge=3600)] = 14 * 86_400.0
    """An object made here that was not written anew for this long is deleted."""
    most_objects: Annotated[int, msgspec.Meta(ge=0)] = 20_000
    least_days: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.02
    """Confidence from which anything is said: half an hour."""
    estimates: RecommendSettings = RecommendSettings()
    replicas: ReplicaSettings = ReplicaSettings()


class Recommendations(Controller[RecommendationSettings]):
    """Publishes what workloads should ask for; changes no pod."""

    settings_type = RecommendationSettings
    watches: ClassVar[tuple[Resource[Any], ...]] = (RECOMMENDATION, WORKLOAD_PROFILE)
    projections: ClassVar[tuple[type[AnyProjection], ...]] = (WorkloadUsage,)
    period_seconds: ClassVar[float] = 600.0

    def plan(self, view: View, now: float) -> Writes:
        """Return recommendations that are missing, differ or are old; in a full plan only."""
        observed = view.of(WorkloadUsage)
        if not view.full:
            return Writes()
        objects = view.objects(RECOMMENDATION)
        known = [(name, workload) for name in sorted(observed.rows) if (workload := workload_named(name))]
        by_namespace: dict[str, list[str]] = {}
        for name, workload in known:
            by_namespace.setdefault(workload.namespace, []).append(name)
        targets = {
            key: _target(each, observed, by_namespace.get(key.namespace, ())) for key, each in sorted(objects.items())
        }
        if self.settings.create:
            for name, workload in known:
                if len(targets) < self.settings.most_objects:
                    targets.setdefault(Key(workload.namespace, workload.profile_name), Target((name,)))
        profiles = {_path(each): each for each in view.objects(WORKLOAD_PROFILE).values()}
        settings = self.settings
        found = advise(observed, list(targets.values()), profiles, settings.estimates, settings.replicas)
        writes: list[Write] = []
        for (key, target), advice in zip(targets.items(), found, strict=True):
            stored = objects.get(key)
            if advice is None or advice.confidence_days < settings.least_days:
                writes += self._old(stored, now)
            elif stored is None:
                writes += _made(target, advice, now)
            elif self._is_due(stored, advice, now):
                writes += _written(stored, advice, now)
        return Writes(writes)

    def explain(self, view: View, kind: str, key: Key, now: float) -> Sequence[str]:
        """Return inputs and formulas of a stored recommendation."""
        stored = view.objects(RECOMMENDATION).get(key)
        advice = advice_of(stored) if stored is not None else None
        if kind != kind_name(RECOMMENDATION) or stored is None or advice is None:
            return ()
        return explained(stored, advice, self.settings.estimates, self.settings.replicas)

    def _is_due(self, stored: Recommendation, advice: Advice, now: float) -> bool:
        updated, before = epoch_seconds(stored.status.update_time), advice_of(stored)
        if updated is None or updated > now or before is None:
            return True
        age = now - updated
        if advice.confidence_days < min(before.confidence_days, SURE_DAYS) and age < self.settings.keep_seconds / 2:
            return False  # a restart knows less than what was published before it
        return age >= self.settings.keep_seconds / 2 or (
            age >= self.settings.publish_seconds and _differs(before, advice)
        )

    def _old(self, stored: Recommendation | None, now: float) -> list[Write]:
        if stored is None or stored.metadata.labels.get("app.kubernetes.io/managed-by") != "koord-manager":
            return []
        updated = epoch_seconds(stored.status.update_time)
        if updated is None or now - updated <= self.settings.keep_seconds:
            return []
        return [delete(RECOMMENDATION, stored, "nothing was reported of the workload for long")]


def explained(
    stored: Recommendation, advice: Advice, estimates: RecommendSettings, scaling: ReplicaSettings
) -> list[str]:
    """Return lines on what a recommendation follows from."""
    lines = [f"from the reports of the nodes until {stored.status.update_time or 'no time'}"]
    for each in advice.containers:
        row = Row("container", each.name, advice.confidence_days, each.cpu_millicores, each.memory_bytes, 0, 0, 0, None)
        lines += why_requests(row, estimates)
        if each.waited_seconds is not None:
            target = each.cpu_millicores.target if each.cpu_millicores is not None else 0
            lines.append(
                f"  waits: a replica waits {each.waited_seconds:.0f} s a day for CPUs that others hold, of which a"
                f" request of {target}m instead of {each.request_millicores or 0}m would have cured"
                f" {each.cured_seconds or 0:.0f} s = min(wait, request - use) of each sample, less that of the present"
                " request"
            )
        if each.limit_millicores is not None:
            lines.append(
                f"  cpu: limit {each.limit_millicores}m = p99 of use and throttled time: more than"
                f" {100 * BUSY_SHARE:.0f} % of the present limit is used half of the time, and a pod loses"
                f" {advice.throttled or 0:.3g} s a second to it"
            )
    if advice.replicas is not None and advice.demand is not None:
        lines += replicas.why(advice.replicas, advice.demand, scaling)
    elif len(advice.containers):
        lines.append("replicas: none, there is no forecast for each hour of the coming day yet")
    return lines


def _path(profile: WorkloadProfile) -> str:
    named = profile.spec.workload
    return Workload(profile.metadata.namespace, named.kind, named.name).path


def _target(stored: Recommendation, observed: ObservedUsage, names: Sequence[str]) -> Target:
    """Return the workloads that an object means: one, or those of `names` with a pod that its selector selects."""
    target, namespace = stored.spec.target, stored.metadata.namespace
    if target.type == "workload":
        named = target.workload
        return Target((Workload(namespace, named.kind, named.name).path,) if named else ())
    selector = target.pod_selector
    if selector is None:
        return Target(())
    return Target(
        tuple(
            name
            for name in names
            if any(label_selector_matches(selector, pod.metadata.labels) for pod in observed.replicas(name))
        )
    )


def _made(target: Target, advice: Advice, now: float) -> list[Write]:
    """Return the creation of an object, and of its status, which the API server takes apart."""
    workload = workload_named(target.workloads[0])
    assert workload is not None
    meta = ObjectMeta(
        name=workload.profile_name,
        namespace=workload.namespace,
        labels=MANAGED_BY,
        annotations={ANNOTATION_ADVICE: _text(advice)},
    )
    reference = WorkloadReference(kind=workload.kind, name=workload.name, api_version=_api_version(workload.kind))
    spec = RecommendationSpec(target=RecommendationTarget(type="workload", workload=reference))
    made = Recommendation(metadata=meta, spec=spec)
    document = {
        "apiVersion": RECOMMENDATION.api_version,
        "kind": RECOMMENDATION.kind,
        **msgspec.to_builtins(made),
    }
    reason = "nodes report of the workload"
    return [
        create(RECOMMENDATION, document, reason),
        patch(RECOMMENDATION, made, _status(made, advice, now), reason, subresource="status"),
    ]


def _written(stored: Recommendation, advice: Advice, now: float) -> list[Write]:
    reason = "nodes report otherwise"
    annotations = {"metadata": {"annotations": {ANNOTATION_ADVICE: _text(advice)}}}
    return [
        patch(RECOMMENDATION, stored, annotations, reason),
        patch(RECOMMENDATION, stored, _status(stored, advice, now), reason, subresource="status"),
    ]


def _api_version(kind: str) -> str:
    return {"Job": "batch/v1", "CronJob": "batch/v1"}.get(
        kind, "apps/v1" if kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet") else ""
    )


def _text(advice: Advice) -> str:
    return msgspec.json.encode(advice).decode()


def _status(stored: Recommendation, advice: Advice, now: float) -> dict[str, Any]:
    """Return the patch of the status."""
    containers = [
        ContainerRecommendation(container_name=each.name, resources={**format_resources(_requests(each))})
        for each in advice.containers
    ]
    doubtful = advice.confidence_days < LOW_CONFIDENCE
    condition = Condition(
        type="LowConfidence",
        status="True" if doubtful else "False",
        reason="ShortHistory" if doubtful else "EnoughHistory",
        message=f"{advice.confidence_days:.2f} days of samples",
        last_transition_time=_since(stored, "True" if doubtful else "False", now),
    )
    status = RecommendationStatus(
        pod_status=PodRecommendation(container_statuses=containers), update_time=rfc3339(now), conditions=[condition]
    )
    return {"status": msgspec.to_builtins(status)}


def _since(stored: Recommendation, status: str, now: float) -> str:
    for each in stored.status.conditions:
        if each.type == "LowConfidence" and each.status == status and each.last_transition_time:
            return each.last_transition_time
    return rfc3339(now)


def _requests(each: ContainerAdvice) -> dict[str, int]:
    pairs: Mapping[str, Amounts | None] = {CPU: each.cpu_millicores, MEMORY: each.memory_bytes}
    return {name: amounts.target for name, amounts in pairs.items() if amounts is not None}


def _differs(before: Advice, after: Advice) -> bool:
    """Return whether a reader would act otherwise: an amount moved by a tenth, or came or went."""
    left, right = _numbers(before), _numbers(after)
    return left.keys() != right.keys() or any(
        abs(right[name] - left[name]) > CHANGED * max(abs(left[name]), abs(right[name])) for name in left
    )


def _numbers(advice: Advice) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in advice.containers:
        for name, amount in _requests(each).items():
            found[f"{each.name}/{name}"] = amount
        if each.limit_millicores is not None:
            found[f"{each.name}/limit"] = each.limit_millicores
        if each.cured_seconds is not None and each.cured_seconds >= CURED_LEAST_SECONDS:
            found[f"{each.name}/cured"] = each.cured_seconds
    if advice.replicas is not None:
        found["least"], found["most"] = advice.replicas.min_replicas, advice.replicas.max_replicas
        found["target"] = advice.replicas.target_cpu_utilization_percent
    return found
