"""Pods against the protocol: classes and priorities, resources, grants, keys of schedulers, quotas."""

from collections.abc import Iterator, Mapping

from api.kube.objects import Container, Pod
from api.kube.pod_requests import effective_requests
from api.kube.resources import CPU, QuantityError, parse_resources
from api.protocol import (
    ANNOTATION_EXTENDED_RESOURCE_SPEC,
    BATCH_CPU,
    BATCH_MEMORY,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    LABEL_GRANTED_QOS_CLASSES,
    LABEL_PRIORITY,
    LABEL_QOS_CLASS,
    LABEL_QUOTA_NAME,
    LABEL_QUOTA_PREEMPTIBLE,
)
from api.qos import PriorityBand, QoSClass
from controllers.webhooks.review import ADMITTED, Answer, Document, RefusedError, Request
from controllers.webhooks.rules.documents import converted
from controllers.webhooks.rules.pod_class import stated_band, stated_qos
from controllers.webhooks.rules.protected_keys import FORBIDDEN_KEYS, SCHEDULER_KEYS, changed
from controllers.webhooks.rules.quota_object import RESERVED, Quota, quota_of
from controllers.webhooks.rules.translation import extended_resource_spec, stated_amounts
from controllers.webhooks.view import ClusterView

FORBIDDEN_BANDS: Mapping[QoSClass, frozenset[PriorityBand]] = {
    QoSClass.BE: frozenset({PriorityBand.NONE, PriorityBand.PROD}),
    QoSClass.LSR: frozenset({PriorityBand.NONE, PriorityBand.MID, PriorityBand.BATCH, PriorityBand.FREE}),
}
"""Priority classes that a QoS class must not have; what is not named here is admitted."""

FEWEST_BATCH_MILLICORES = 50
"""Batch CPU below which cores were probably meant."""


def validate_pod(request: Request, view: ClusterView) -> Answer:
    """Answer the creation or update of a pod.

    An update is held to what must not change, never to what the pod was when it was created: a pod from before these
    rules can still be finished and deleted.
    """
    if request.object is None or request.operation not in ("CREATE", "UPDATE"):
        return ADMITTED
    pod = converted(request.object, Pod)
    try:
        if request.operation == "CREATE":
            refusals = [*class_refusals(pod), *_created(pod, request, view)]
        else:
            refusals = list(_updated(pod, request, view))
        warnings = tuple(_warnings(pod)) if request.operation == "CREATE" else ()
    except QuantityError as error:
        raise RefusedError(f"resources: {error}", 400) from error
    return Answer(refusal="; ".join(refusals), warnings=warnings)


def class_refusals(pod: Pod) -> Iterator[str]:
    """Yield what is wrong with a pod's QoS class, its priority class and its resources. Raises QuantityError."""
    qos, band = stated_qos(pod.metadata.labels), stated_band(pod)
    if band in FORBIDDEN_BANDS.get(qos, ()):
        yield f"{LABEL_QOS_CLASS}={qos} and priority class {band or 'none'} cannot be used together"
    requests = effective_requests(pod)
    if qos is not QoSClass.BE and (requests.get(BATCH_CPU) or requests.get(BATCH_MEMORY)):
        yield f"{BATCH_CPU} and {BATCH_MEMORY} need the label {LABEL_QOS_CLASS}=BE"
    if qos in (QoSClass.LSE, QoSClass.LSR):
        cpu = requests.get(CPU, 0)
        if cpu <= 0 or cpu % 1000:
            yield f"{LABEL_QOS_CLASS}={qos} needs a request of whole CPUs, got {cpu}m"


def _created(pod: Pod, request: Request, view: ClusterView) -> Iterator[str]:
    yield from _key_refusals({}, pod.metadata.annotations, request, view)
    if view.validate_devices:
        for container in pod.spec.containers:
            yield from _device_refusals(container)
    stated = stated_qos(pod.metadata.labels)
    if stated in view.restricted_classes:
        granted = view.namespace_labels(request.namespace).get(LABEL_GRANTED_QOS_CLASSES, "").split(".")
        if stated.value not in granted:
            yield (
                f"namespace {request.namespace} may not use {LABEL_QOS_CLASS}={stated}: "
                f"its label {LABEL_GRANTED_QOS_CLASSES} does not name it"
            )
    yield from _spec_refusals(pod.metadata.annotations, request.object or {})
    quota = quota_of(view.quotas, request.namespace, pod.metadata.labels.get(LABEL_QUOTA_NAME, ""))
    if quota is not None and quota.is_parent:
        yield f"quota {quota.name} is a parent; pods use quotas without children only"
    if quota is not None and view.quota_admission and quota.name not in RESERVED:
        yield from _quota_refusals(pod, quota)


def _quota_refusals(pod: Pod, quota: Quota) -> Iterator[str]:
    limits = quota.admitted or quota.maximum
    for name, amount in sorted(effective_requests(pod).items()):
        # What the quota does not bound, or bounds by nothing, is not counted.
        if amount <= 0 or not quota.maximum.get(name) or name not in limits:
            continue
        whole = quota.requested.get(name, 0) + amount
        if whole > limits[name]:
            yield (
                f"quota {quota.name} has no room: {name} {amount} beside {quota.requested.get(name, 0)} is above"
                f" {limits[name]}"
            )


def _updated(pod: Pod, request: Request, view: ClusterView) -> Iterator[str]:
    old = converted(request.old_object or {}, Pod)
    before, after = old.metadata, pod.metadata
    if stated_qos(before.labels) is not stated_qos(after.labels):
        yield f"label {LABEL_QOS_CLASS} cannot be changed"
    if stated_band(old) is not stated_band(pod):
        yield "the priority class of a pod cannot be changed"
    for label in (LABEL_PRIORITY, LABEL_QUOTA_PREEMPTIBLE):
        if before.labels.get(label, "") != after.labels.get(label, ""):
            yield f"label {label} cannot be changed"
    yield from _key_refusals(before.annotations, after.annotations, request, view)
    if changed(before.annotations, after.annotations, (ANNOTATION_EXTENDED_RESOURCE_SPEC,)):
        yield from _spec_refusals(after.annotations, request.object or {})


def _key_refusals(
    before: Mapping[str, str], after: Mapping[str, str], request: Request, view: ClusterView
) -> Iterator[str]:
    for key in changed(before, after, FORBIDDEN_KEYS):
        if key in after:
            yield f"annotation {key} marks a scheduler's stand-in for a reservation; no pod may have it"
    written = changed(before, after, SCHEDULER_KEYS)
    if written and not view.may_bind(request.user_info, request.namespace):
        yield f"annotation {written[0]} is a scheduler's: it takes the right to create pods/binding"


def _spec_refusals(annotations: Mapping[str, str], document: Document) -> Iterator[str]:
    stated = annotations.get(ANNOTATION_EXTENDED_RESOURCE_SPEC)
    if stated is None:
        return
    found = stated_amounts(stated)
    if found is None or found != stated_amounts(extended_resource_spec(document) or "{}"):
        yield f"annotation {ANNOTATION_EXTENDED_RESOURCE_SPEC} differs from the resources of the containers"


def _device_refusals(container: Container) -> Iterator[str]:
    amounts = parse_resources(container.resources.requests)
    name = container.name
    if GPU in amounts and GPU_SHARED in amounts:
        yield f"container {name}: {GPU} and {GPU_SHARED} cannot be requested together"
    for resource in (GPU, GPU_CORE, GPU_MEMORY_RATIO):
        percent = amounts.get(resource, 0)
        if percent > 100 and percent % 100:
            yield f"container {name}: {resource} above 100 must be whole GPUs, got {percent}"
    if GPU_SHARED in amounts:
        yield from _shared_gpu_refusals(name, amounts)


def _shared_gpu_refusals(name: str, amounts: Mapping[str, int]) -> Iterator[str]:
    shared = amounts[GPU_SHARED]
    if shared <= 0:
        yield f"container {name}: {GPU_SHARED} must be above 0"
        return
    if bool(amounts.get(GPU_MEMORY)) == bool(amounts.get(GPU_MEMORY_RATIO)):
        yield f"container {name}: {GPU_SHARED} needs either {GPU_MEMORY} or {GPU_MEMORY_RATIO}"
    for resource in (GPU_CORE, GPU_MEMORY_RATIO):
        if amounts.get(resource, 0) % shared:
            yield f"container {name}: {resource} must be a multiple of {GPU_SHARED}"


def _warnings(pod: Pod) -> Iterator[str]:
    label = pod.metadata.labels.get(LABEL_QOS_CLASS, "")
    if label and not stated_qos(pod.metadata.labels):
        yield f"{LABEL_QOS_CLASS}={label} is no QoS class and counts as none; there are LSE, LSR, LS, BE and SYSTEM"
    for container in pod.spec.containers:
        amount = parse_resources(container.resources.requests).get(BATCH_CPU, 0)
        if 0 < amount < FEWEST_BATCH_MILLICORES:
            yield f"container {container.name}: {BATCH_CPU} counts millicores; {amount} is {amount / 1000:g} of a CPU"
