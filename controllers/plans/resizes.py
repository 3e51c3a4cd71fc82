"""In-place resizes of pods whose Recommendation asks for them, to what it recommends; off, and a dry run first."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec

from api.crds import Recommendation
from api.kube.workload import Workload
from api.protocol import ANNOTATION_UPDATE_MODE
from cluster.events import Event
from cluster.resources import Key, Resource
from controllers.kinds import POD, RECOMMENDATION, Pod
from controllers.recommend.advice import advice_of
from controllers.recommend.observed import WorkloadUsage
from controllers.recommend.outlook import ObservedUsage
from controllers.recommend.resizing import is_under_way, resized, why_not
from controllers.runtime.controller import Controller, ControllerSettings
from controllers.runtime.view import AnyProjection, View
from controllers.runtime.writes import Write, Writes, kind_name, patch, reference

IN_PLACE = "InPlace"
"""Value of the annotation that asks for resizes."""


class ResizeSettings(ControllerSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of Resizes."""

    enabled: bool = False
    """Resize pods of the workloads whose Recommendation has `analysis.koordinator.sh/update-mode: InPlace`."""
    dry_run: bool = True
    """Record in an Event of the pod what would be changed, and change nothing."""
    least_days: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """Confidence from which a recommendation is followed."""
    pause_seconds: Annotated[float, msgspec.Meta(ge=0)] = 3600.0
    """Least time between two resizes of one pod."""
    most_pods: Annotated[int, msgspec.Meta(ge=1)] = 10
    """Pods that are resized in one plan, every ten minutes; of one workload it is one."""


class Resizes(Controller[ResizeSettings]):
    """Changes requests and limits of running pods, one of a workload at a time; restarts none by itself."""

    settings_type = ResizeSettings
    watches: ClassVar[tuple[Resource[Any], ...]] = (RECOMMENDATION,)
    projections: ClassVar[tuple[type[AnyProjection], ...]] = (WorkloadUsage,)
    period_seconds: ClassVar[float] = 600.0

    def plan(self, view: View, now: float) -> Writes:
        """Return the resizes that are due; in a full plan only."""
        if not view.full:
            return Writes()
        observed = view.of(WorkloadUsage)
        writes: list[Write] = []
        events: list[Event] = []
        for _, stored in sorted(view.objects(RECOMMENDATION).items()):
            pods = _pods(stored, observed)
            # The next pod waits until the one before it has what it was given, or its node has said no.
            if any(is_under_way(pod) for pod in pods):
                continue
            for pod in pods:
                found = self._resize(view, stored, pod, now)
                if found is None:
                    continue
                note, regarding = _note(found), reference(POD, pod)
                if self.settings.dry_run:
                    events.append(Event(regarding, "WouldResize", note, "ResizePod", "Normal"))
                else:
                    event = Event(regarding, "Resize", note, "ResizePod", "Normal")
                    body = {"spec": {"containers": found}}
                    writes.append(patch(POD, pod, body, note, subresource="resize", event=event, strategic=True))
                break
            if len(writes) + len(events) >= self.settings.most_pods:
                break
        return Writes(writes, events)

    def explain(self, view: View, kind: str, key: Key, now: float) -> Sequence[str]:
        """Return whether running pods are resized by a recommendation."""
        stored = view.objects(RECOMMENDATION).get(key)
        if kind != kind_name(RECOMMENDATION) or stored is None:
            return ()
        if stored.metadata.annotations.get(ANNOTATION_UPDATE_MODE) != IN_PLACE:
            return (f"running pods stay as they are: {ANNOTATION_UPDATE_MODE} is not {IN_PLACE}",)
        advice = advice_of(stored)
        days = advice.confidence_days if advice is not None else 0.0
        if days < self.settings.least_days:
            return (
                f"running pods stay as they are: {days:.2f} days of samples are less than {self.settings.least_days:g}",
            )
        how = "an Event says what would change" if self.settings.dry_run else "one after the other is resized in place"
        return (f"running pods whose requests lie outside the bounds: {how}",)

    def _resize(self, view: View, stored: Recommendation, pod: Pod, now: float) -> list[dict[str, Any]] | None:
        advice = advice_of(stored)
        if advice is None or advice.confidence_days < self.settings.least_days or why_not(pod):
            return None
        written = view.written_seconds(POD, Key(pod.metadata.namespace, pod.metadata.name))
        if written is not None and now - written < self.settings.pause_seconds:
            return None
        return resized(pod, advice) or None


def _pods(stored: Recommendation, observed: ObservedUsage) -> list[Pod]:
    """Return the pods that a Recommendation asks to resize: of its workload and namespace, by name."""
    named, namespace = stored.spec.target.workload, stored.metadata.namespace
    if stored.metadata.annotations.get(ANNOTATION_UPDATE_MODE) != IN_PLACE or named is None:
        return []
    # A workload is what nodes say it is; a namespace is what the API server says.
    reported = observed.replicas(Workload(namespace, named.kind, named.name).path)
    return [pod for pod in reported if pod.metadata.namespace == namespace]


def _note(containers: Sequence[dict[str, Any]]) -> str:
    """Return what changes in words."""
    parts = [
        f"{each['name']}: {kind} {name} {amount}"
        for each in containers
        for kind, amounts in each["resources"].items()
        for name, amount in amounts.items()
    ]
    return f"the recommendation says otherwise: {', '.join(parts)}"
