"""Pods that colocation profiles would have changed and did not: the webhook was away when they were created."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from api.crds import ClusterColocationProfile
from api.kube.objects import Pod
from api.kube.selectors import requirement_matches
from api.protocol import ANNOTATION_SKIP_UPDATE_RESOURCES, LABEL_PRIORITY, LABEL_QOS_CLASS
from controllers.webhooks.review import RefusedError
from controllers.webhooks.rules.pod_class import effective_band
from controllers.webhooks.rules.profiles import percent_of, selects
from controllers.webhooks.rules.translation import TRANSLATED


@dataclass(frozen=True, slots=True)
class Unmutated:
    """A pod, the profile that selects it, and what the pod lacks of it."""

    pod: Pod
    profile: str
    lacks: tuple[str, ...]

    @property
    def message(self) -> str:
        """A sentence for an Event."""
        return (
            f"profile {self.profile} selects this pod, which lacks {', '.join(self.lacks)}: it was created while the "
            "webhook did not answer, or before the profile; create it again to have the profile applied"
        )


def unmutated(
    pods: Iterable[Pod],
    profiles: Sequence[ClusterColocationProfile],
    namespace_labels: Mapping[str, Mapping[str, str]],
    exempt_namespaces: frozenset[str] = frozenset(),
) -> Iterator[Unmutated]:
    """Yield the unfinished pods that lack what the last profile that selects them gives to all pods.

    Profiles for a part of the pods say nothing of one pod. A pod that was created before its profile is found too: its
    owner decides whether to create it again.
    """
    certain = [profile for profile in profiles if _applies_to_all(profile)]
    for pod in pods:
        namespace = pod.metadata.namespace
        if pod.finished or namespace in exempt_namespaces:
            continue
        labels = namespace_labels.get(namespace, {})
        matched = [profile for profile in certain if selects(profile, pod.metadata.labels, labels)]
        if matched:
            lacks = tuple(_lacks(pod, matched))
            if lacks:
                yield Unmutated(pod, matched[-1].metadata.name, lacks)


def selection(profile: ClusterColocationProfile, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> str:
    """Return which requirement of a profile a pod or its namespace fails; empty where the profile selects the pod."""
    spec = profile.spec
    for whose, selector, found in (
        ("the namespace", spec.namespace_selector, namespace_labels),
        ("the pod", spec.selector, labels),
    ):
        if selector is None:
            continue
        for key, value in selector.match_labels.items():
            if found.get(key) != value:
                present = f"is {found[key]!r}" if key in found else "is absent"
                return f"label {key} of {whose} {present}; the profile wants {value!r}"
        for item in selector.match_expressions:
            if not requirement_matches(item, found.get(item.key)):
                wanted = f"{item.operator} {', '.join(item.values)}".strip()
                return f"label {item.key} of {whose} is {found.get(item.key, '')!r}; the profile wants {wanted}"
    return ""


def _applies_to_all(profile: ClusterColocationProfile) -> bool:
    try:
        return percent_of(profile) == 100
    except RefusedError:
        return False


def _lacks(pod: Pod, matched: Sequence[ClusterColocationProfile]) -> Iterator[str]:
    labels, spec = pod.metadata.labels, pod.spec
    wanted = {
        f"label {LABEL_QOS_CLASS}": (labels.get(LABEL_QOS_CLASS, ""), [item.spec.qos_class for item in matched]),
        "priorityClassName": (spec.priority_class_name, [item.spec.priority_class_name for item in matched]),
        "schedulerName": (spec.scheduler_name, [item.spec.scheduler_name for item in matched]),
        f"label {LABEL_PRIORITY}": (labels.get(LABEL_PRIORITY, ""), [_priority(item) for item in matched]),
    }
    for place, (present, stated) in wanted.items():
        # Later profiles overwrite earlier ones.
        last = next((value for value in reversed(stated) if value), "")
        if last and present != last:
            yield place
    skipped = any(ANNOTATION_SKIP_UPDATE_RESOURCES in item.metadata.annotations for item in matched)
    names = TRANSLATED.get(effective_band(pod), {})
    native = {
        name for container in spec.containers for name in (*container.resources.requests, *container.resources.limits)
    }
    if not skipped and native & names.keys():
        yield f"resources {', '.join(sorted(names[name] for name in native & names.keys()))}"


def _priority(profile: ClusterColocationProfile) -> str:
    return "" if profile.spec.koordinator_priority is None else str(profile.spec.koordinator_priority)
