"""WorkloadProfiles: sensitivity, aggressiveness, usual values and use of each workload, over nodes and time."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from api.crds.analysis import (
    ContainerUsage,
    ResourceInterference,
    WorkloadProfile,
    WorkloadProfileSpec,
    WorkloadProfileStatus,
    WorkloadReference,
)
from api.kube.interference import RESOURCES, UsualValues
from api.kube.meta import ObjectMeta
from api.kube.times import epoch_seconds, rfc3339
from api.kube.workload import Workload, workload_named
from cluster.resources import Key, Resource
from controllers.kinds import WORKLOAD_PROFILE
from controllers.profiles.merge import T_90, traits
from controllers.profiles.objects import Figures, resource_of
from controllers.profiles.observations import HALF_LIFE_SECONDS, Observations, Observed
from controllers.recommend import distribution
from controllers.recommend.observed import WorkloadUsage
from controllers.runtime.controller import Controller, ControllerSettings
from controllers.runtime.view import AnyProjection, View
from controllers.runtime.writes import Write, Writes, create, delete, kind_name, patch

MANAGED_BY = {"app.kubernetes.io/managed-by": "koord-manager"}
"""Label of the profiles that this controller made; others are left alone."""
CHANGED = 0.1
"""Relative change of a figure from which it is published anew."""
SAMPLE_SECONDS = 60.0
"""Time that one sample of a figure stands for."""


class ProfileSettings(ControllerSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of WorkloadProfiles."""

    enabled: bool = False
    """Publish profiles: off until asked for, since their number is that of all workloads."""
    publish_seconds: Annotated[float, msgspec.Meta(ge=60)] = 3600.0
    """Least time between two writes of one profile."""
    keep_seconds: Annotated[float, msgspec.Meta(ge=3600)] = 14 * 86_400.0
    """A profile that nothing was added to for this long is deleted."""
    most_profiles: Annotated[int, msgspec.Meta(ge=0)] = 50_000


class WorkloadProfiles(Controller[ProfileSettings]):
    """Publishes what nodes' reports say of workloads."""

    settings_type = ProfileSettings
    watches: ClassVar[tuple[Resource[Any], ...]] = (WORKLOAD_PROFILE,)
    projections: ClassVar[tuple[type[AnyProjection], ...]] = (Observations, WorkloadUsage)
    period_seconds: ClassVar[float] = 600.0

    def plan(self, view: View, now: float) -> Writes:
        """Return profiles that are missing, differ or are old; in a full plan only, as all are merged at once."""
        observed, used = view.of(Observations), view.of(WorkloadUsage)
        profiles = view.objects(WORKLOAD_PROFILE)
        if not view.full:
            return Writes()
        for known in profiles.values():
            _restore(observed, known, now)
        found = _figures(observed)
        # The sums of a workload that is gone age alike and never end: what its figures say is news no longer.
        names = sorted(
            name
            for name in {*found, *observed.usual.workloads(), *used.rows, *map(_path, profiles.values())}
            if now - observed.heard_seconds.get(name, float("-inf")) <= self.settings.keep_seconds
        )
        usage = distribution.usage_of(used, names)
        writes: list[Write] = []
        count = len(profiles)
        for name in names:
            workload = workload_named(name)
            if workload is None:
                continue
            profile = profiles.get(Key(workload.namespace, workload.profile_name))
            resources = _best(profile, found.get(name, {}), now)
            stated = distribution.better(profile.status.usage if profile is not None else (), usage.get(name, []))
            status = _status(resources, observed.usual.of(name, now), stated, now)
            if profile is None and not status.resources and not status.usual_values and not status.usage:
                continue
            if profile is None and count < self.settings.most_profiles:
                count += 1
                writes += _made(workload, status)
            elif profile is not None and self._is_due(profile, status, observed.heard_seconds[name], now):
                writes.append(
                    patch(WORKLOAD_PROFILE, profile, _body(status), "nodes report otherwise", subresource="status")
                )
        return Writes([*writes, *self._old(profiles, observed, now)])

    def explain(self, view: View, kind: str, key: Key, now: float) -> Sequence[str]:
        """Return what a profile's figures rest on."""
        profile = view.objects(WORKLOAD_PROFILE).get(key)
        if kind != kind_name(WORKLOAD_PROFILE) or profile is None:
            return ()
        lines = ["lost seconds a second = sensitivity x sum over neighbours of aggressiveness; errors at 90 %"]
        for each in profile.status.resources:
            for own in each.sensitivity:
                error = f" +- {own.error:.4g}" if own.error is not None else ""
                lines.append(f"{each.name}: sensitivity {own.lost_seconds_per_pressure:.4g}{error}")
            lines.append(
                f"{each.name}: aggressiveness {each.aggressiveness:.4g}, the pressure of one replica x strength"
            )
        for condition in profile.status.conditions:
            lines.append(f"{condition.type}: {condition.message}")
        count = len(profile.status.usual_values)
        weight = sum(each.weight for each in profile.status.usual_values)
        lines.append(f"usual values of {count} signals and loads from {weight:.0f} samples, aged by three days")
        models = profile.status.models
        if models is not None:
            lines.append(
                f"anomaly models of {models.trained_time or 'no time'}: they find {models.recall:.1%} of the slow harm"
                f" planted into {models.rows} later rows, the best threshold {models.plain_recall:.1%};"
                f" {models.false_alarms:.1%} false alarms"
            )
        return [*lines, *map(distribution.told, distribution.sound(profile.status.usage))]

    def _is_due(
        self, profile: WorkloadProfile, status: WorkloadProfileStatus, heard_seconds: float, now: float
    ) -> bool:
        if profile.metadata.labels.get("app.kubernetes.io/managed-by") != "koord-manager":
            return False
        updated = epoch_seconds(profile.status.update_time)
        if updated is None or updated > now:
            return True
        if heard_seconds <= updated:
            return False
        # The time of a profile is all that a restart knows of when its workload was last heard of.
        age = now - updated
        return age >= self.settings.keep_seconds / 2 or (
            age >= self.settings.publish_seconds and _differs(profile.status, status)
        )

    def _old(self, profiles: Mapping[Key, WorkloadProfile], observed: Observed, now: float) -> list[Write]:
        return [
            delete(WORKLOAD_PROFILE, profile, "nothing was reported of the workload for long")
            for _, profile in sorted(profiles.items())
            if profile.metadata.labels.get("app.kubernetes.io/managed-by") == "koord-manager"
            and (updated := epoch_seconds(profile.status.update_time)) is not None
            and now - observed.heard_seconds.get(_path(profile), updated) > self.settings.keep_seconds
        ]


def _restore(observed: Observed, profile: WorkloadProfile, now: float) -> None:
    if profile.status.usual_values:
        time = epoch_seconds(profile.status.update_time)
        observed.usual.restore(_path(profile), profile.status.usual_values, min(now if time is None else time, now))


def _path(profile: WorkloadProfile) -> str:
    named = profile.spec.workload
    return Workload(profile.metadata.namespace, named.kind, named.name).path


def _figures(observed: Observed) -> dict[str, dict[str, ResourceInterference]]:
    """Return the figures by workload and resource, of those with any; samples are minutes beside one neighbour."""
    found: dict[str, dict[str, ResourceInterference]] = {}
    for which, resource in enumerate(RESOURCES):
        sums = observed.sums.of(which)
        if not len(sums.victims):
            continue
        count = len(observed.workloads)
        each = traits(sums, count, 1)
        sensitive, strong = each.sensitivity, each.strength
        error, pressure = np.nan_to_num(sensitive.error), np.nan_to_num(each.mean_pressure)
        single = sums.neighbours >= 0
        seconds = np.bincount(sums.victims, sums.seconds, count)
        seconds = seconds + np.bincount(sums.neighbours[single], sums.seconds[single], count)
        for place in np.flatnonzero(np.isfinite(sensitive.value) | np.isfinite(strong.value)).tolist():
            own = Figures(
                float(np.nan_to_num(sensitive.value[place])),
                T_90 * float(error[place]),
                float(np.nan_to_num(strong.value[place]) * pressure[place]),
                bool(sensitive.correlated[place]),
                bool(sensitive.trials[place]),
            )
            weight = max(float(seconds[place]) / SAMPLE_SECONDS, 1.0)
            found.setdefault(observed.workloads[place], {})[resource] = _weighed(resource_of(resource, own), weight)
    return found


def _best(
    profile: WorkloadProfile | None, found: Mapping[str, ResourceInterference], now: float
) -> list[ResourceInterference]:
    """Return by resource what more stands behind: what was found here, or what was published before a restart."""
    best = dict(found)
    if profile is not None:
        time = epoch_seconds(profile.status.update_time)
        aged = 0.5 ** (max(now - time, 0.0) / HALF_LIFE_SECONDS if time is not None else 0.0)
        for each in profile.status.resources:
            weight, own = aged * _samples(each), found.get(each.name)
            if weight >= 1 and (own is None or weight > _samples(own)):
                best[each.name] = _weighed(each, weight)
    return [best[name] for name in sorted(best)]


def _samples(resource: ResourceInterference) -> int:
    return sum(each.samples for each in resource.sensitivity)


def _weighed(resource: ResourceInterference, weight: float) -> ResourceInterference:
    """Return a resource whose bins share a number of samples."""
    count = int(min(weight, 2**31 - 1)) // max(len(resource.sensitivity), 1)
    bins = [msgspec.structs.replace(each, samples=count) for each in resource.sensitivity]
    return msgspec.structs.replace(resource, sensitivity=bins)


def _status(
    resources: list[ResourceInterference], usual: list[UsualValues], usage: list[ContainerUsage], now: float
) -> WorkloadProfileStatus:
    weight = sum(each.weight for each in usual)
    return WorkloadProfileStatus(
        resources=resources,
        usual_values=usual,
        usage=usage,
        samples=int(min(weight, 2**31 - 1)),
        update_time=rfc3339(now),
    )


def _body(status: WorkloadProfileStatus) -> dict[str, Any]:
    """Return the patch; a list that is left out of it would stay as it was."""
    return {"status": {"resources": [], "usualValues": [], "usage": [], "samples": 0, **msgspec.to_builtins(status)}}


def _made(workload: Workload, status: WorkloadProfileStatus) -> list[Write]:
    """Return the creation of a profile, and of its status, which the API server takes apart."""
    meta = ObjectMeta(name=workload.profile_name, namespace=workload.namespace, labels=MANAGED_BY)
    spec = WorkloadProfileSpec(workload=WorkloadReference(kind=workload.kind, name=workload.name), container="")
    profile = WorkloadProfile(metadata=meta, spec=spec)
    document = {
        "apiVersion": WORKLOAD_PROFILE.api_version,
        "kind": WORKLOAD_PROFILE.kind,
        **msgspec.to_builtins(profile),
    }
    reason = "nodes report of the workload"
    return [
        create(WORKLOAD_PROFILE, document, reason),
        patch(WORKLOAD_PROFILE, profile, _body(status), reason, subresource="status"),
    ]


def _differs(before: WorkloadProfileStatus, after: WorkloadProfileStatus) -> bool:
    """Return whether a reader would act otherwise: a figure moved by a tenth, or usual values or use did."""
    names = [[each.name for each in status.resources] for status in (before, after)]
    if names[0] != names[1] or len(before.usual_values) != len(after.usual_values):
        return True
    if distribution.differs(before.usage, after.usage):
        return True
    pairs = [
        (old, new)
        for left, right in zip(before.resources, after.resources, strict=True)
        for old, new in zip(_numbers(left), _numbers(right), strict=False)
    ]
    pairs += [(old.weight, new.weight) for old, new in zip(before.usual_values, after.usual_values, strict=True)]
    return any(abs(new - old) > CHANGED * max(abs(old), abs(new), 1e-6) for old, new in pairs)


def _numbers(resource: ResourceInterference) -> list[float]:
    return [resource.aggressiveness, *(each.lost_seconds_per_pressure for each in resource.sensitivity)]
