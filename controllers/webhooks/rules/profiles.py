"""ClusterColocationProfiles: which apply to an object, and what they do to it."""

import zlib
from collections.abc import Mapping, Sequence

from api.crds import ClusterColocationProfile
from api.kube.objects import Pod
from api.kube.patching import PatchError, strategic
from api.kube.selectors import label_selector_matches
from api.protocol import LABEL_PRIORITY, LABEL_QOS_CLASS
from controllers.webhooks.review import Document, RefusedError
from controllers.webhooks.rules.documents import child, converted
from controllers.webhooks.rules.protected_keys import FORBIDDEN_KEYS, SCHEDULER_KEYS, changed
from controllers.webhooks.rules.rights import added_rights
from controllers.webhooks.view import PriorityClass

_MOST_SHOWN = 5
"""Rights that a refusal names."""


def selects(
    profile: ClusterColocationProfile, labels: Mapping[str, str], namespace_labels: Mapping[str, str] | None
) -> bool:
    """Return whether a profile selects an object; a selector that is absent selects everything.

    `namespace_labels` None is an object without a namespace, to which namespace selectors do not apply.
    """
    spec = profile.spec
    if spec.selector is not None and not label_selector_matches(spec.selector, labels):
        return False
    return (
        spec.namespace_selector is None
        or namespace_labels is None
        or label_selector_matches(spec.namespace_selector, namespace_labels)
    )


def percent_of(profile: ClusterColocationProfile) -> int:
    """Return the percentage of objects that a profile changes. Raises RefusedError for a text that is none."""
    stated = profile.spec.probability
    if stated is None:
        return 100
    text = str(stated).strip().removesuffix("%")
    if not text.isdecimal() or (isinstance(stated, str) and not stated.strip().endswith("%")):
        name = profile.metadata.name
        raise RefusedError(f"profile {name}: probability {stated!r} is neither a number nor a percentage such as 30%")
    return min(int(text), 100)


def drawn(profile: ClusterColocationProfile, draw: int) -> bool:
    """Return whether a profile applies to the request of a random number: in as many percent of them as it states."""
    lot = zlib.crc32(f"{draw}/{profile.metadata.name}".encode()) % 100
    return lot < percent_of(profile)


def apply(
    profile: ClusterColocationProfile,
    pod: Document,
    priority_classes: Mapping[str, PriorityClass],
    labelled: Sequence[Document] = (),
) -> Document:
    """Return a pod (or a template) as a profile wants it; `pod` may be changed.

    Labels and annotations are set on `pod` and on the objects of `labelled`. Raises RefusedError, naming the profile,
    where it cannot be applied, would write what only schedulers may write, or would add rights.
    """
    before = dict((pod.get("metadata") or {}).get("annotations") or {})
    for target in (pod, *labelled):
        _set_metadata(profile, child(target, "metadata"))
    spec, stated = child(pod, "spec"), profile.spec
    if stated.scheduler_name:
        spec["schedulerName"] = stated.scheduler_name
    if stated.priority_class_name:
        found = priority_classes.get(stated.priority_class_name)
        if found is None:
            raise RefusedError(
                f"profile {profile.metadata.name} gives the PriorityClass {stated.priority_class_name}, "
                "which the cluster does not have: create it or change the profile"
            )
        spec["priorityClassName"] = stated.priority_class_name
        spec["priority"] = found.value
        spec["preemptionPolicy"] = found.preemption_policy
    if stated.patch:
        pod = _patched(profile, pod)
    after = converted(pod, Pod).metadata.annotations
    written = changed(before, after, (*SCHEDULER_KEYS, *FORBIDDEN_KEYS))
    if written:
        raise RefusedError(f"profile {profile.metadata.name} writes {written[0]}, which only a scheduler may write")
    added = added_rights({"metadata": {"annotations": before}, "spec": spec}, pod)
    if added:
        raise RefusedError(
            f"profile {profile.metadata.name} gives this pod what its author did not ask for: "
            f"{', '.join(added[:_MOST_SHOWN])}; take it out of the profile"
        )
    return pod


def _set_metadata(profile: ClusterColocationProfile, metadata: Document) -> None:
    spec = profile.spec
    labels = {**(metadata.get("labels") or {}), **spec.labels}
    annotations = {**(metadata.get("annotations") or {}), **spec.annotations}
    for old, new in spec.label_keys_mapping.items():
        labels[new] = labels.get(old, "")
    for old, new in spec.annotation_keys_mapping.items():
        annotations[new] = annotations.get(old, "")
    for name, suffix in spec.label_suffixes.items():
        # A second pass over its own result must not append again.
        if name in labels and not labels[name].endswith(suffix):
            labels[name] += suffix
    if spec.qos_class:
        labels[LABEL_QOS_CLASS] = spec.qos_class
    if spec.koordinator_priority is not None:
        labels[LABEL_PRIORITY] = str(spec.koordinator_priority)
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations


def _patched(profile: ClusterColocationProfile, pod: Document) -> Document:
    try:
        patched = strategic(pod, profile.spec.patch)
        converted(patched, Pod)
    except (PatchError, RefusedError, TypeError, AttributeError, RecursionError) as error:
        raise RefusedError(f"the patch of profile {profile.metadata.name} does not fit this pod: {error}") from error
    result: Document = patched
    return result
