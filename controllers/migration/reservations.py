"""The reservation of a migration: the pod's own template, for the pod that its controller makes next."""

from typing import Any

import msgspec

from api.crds.placement import ControllerReference, PodMigrationJob, Reservation, ReservationOwner, ReservationSpec
from api.kube.meta import ObjectMeta, ObjectReference
from api.kube.times import duration_seconds
from api.protocol import (
    ANNOTATION_BIND_GANG_GROUP_ID,
    ANNOTATION_BIND_GANG_MEMBER_COUNT,
    ANNOTATION_BIND_TIMESTAMP,
    ANNOTATION_DEVICE_ALLOCATED,
    ANNOTATION_GANG_PREFIX,
    ANNOTATION_GPU_MINORS,
    ANNOTATION_RESERVATION_ALLOCATED,
    ANNOTATION_RESOURCE_STATUS,
    LABEL_POD_GROUP,
    LABEL_RESERVATION_ORDER,
)
from cluster.resources import Document
from controllers.migration.progress import CREATED_BY, LABEL_CREATED_BY

DEFAULT_TTL = "5m"
GRACE_SECONDS = 30
"""Kubernetes' default grace period of a pod."""
SUCCESSOR_SECONDS = 60
"""Time for the controller to make the successor, and for the scheduler to place it."""

DECIDED = frozenset(
    {
        ANNOTATION_RESOURCE_STATUS,
        ANNOTATION_DEVICE_ALLOCATED,
        ANNOTATION_RESERVATION_ALLOCATED,
        ANNOTATION_GPU_MINORS,
        ANNOTATION_BIND_TIMESTAMP,
        ANNOTATION_BIND_GANG_GROUP_ID,
        ANNOTATION_BIND_GANG_MEMBER_COUNT,
    }
)
"""Annotations in which a scheduler noted what it gave the pod."""
NODE_NAMES = "requiredDuringSchedulingIgnoredDuringExecution"


def reservation_name(job: PodMigrationJob) -> str:
    """Return the name of a job's reservation: the stated one, or the job's uid."""
    stated = job.spec.reservation_options
    if stated is not None and stated.reservation_ref is not None and stated.reservation_ref.name:
        return stated.reservation_ref.name
    return job.metadata.uid


def reservation_of(job: PodMigrationJob, pod: Document, now: float) -> Reservation:
    """Return the reservation for the successor of a pod, given as it is stored."""
    meta = msgspec.convert(pod["metadata"], ObjectMeta)
    spec = dict(pod.get("spec") or {})
    node = spec.pop("nodeName", "")
    if node:
        spec["affinity"] = _elsewhere(spec.get("affinity") or {}, node)
    labels = {LABEL_CREATED_BY: CREATED_BY, LABEL_RESERVATION_ORDER: str(int(now * 1000))}
    template: dict[str, Any] = {
        "metadata": {
            "namespace": meta.namespace,
            "labels": {key: text for key, text in meta.labels.items() if not key.startswith(LABEL_POD_GROUP)},
            "annotations": {key: text for key, text in meta.annotations.items() if not _decided(key)},
        },
        "spec": spec,
    }
    stated = job.spec.reservation_options.template if job.spec.reservation_options else None
    return Reservation(
        metadata=ObjectMeta(
            name=job.metadata.uid,
            labels=labels,
        ),
        spec=ReservationSpec(
            template={**template, **(stated or {})},
            owners=[_owner(meta, pending=not node)],
            ttl=_ttl(job, spec),
            allocate_once=True,
        ),
    )


def _ttl(job: PodMigrationJob, pod_spec: Document) -> str:
    """Return how long the place is held: an eviction may begin as the job ends, and its pod ends after its grace."""
    own = duration_seconds(job.spec.ttl or DEFAULT_TTL)
    if not own:
        return "0s" if own == 0 else DEFAULT_TTL
    grace = pod_spec.get("terminationGracePeriodSeconds")
    return f"{int(own) + (grace if isinstance(grace, int) else GRACE_SECONDS) + SUCCESSOR_SECONDS}s"


def _decided(annotation: str) -> bool:
    # A member of a gang would wait for the others.
    return annotation in DECIDED or annotation.startswith(ANNOTATION_GANG_PREFIX)


def _owner(meta: ObjectMeta, *, pending: bool) -> ReservationOwner:
    controller = meta.controlled_by
    if pending or controller is None:
        return ReservationOwner(object=ObjectReference(namespace=meta.namespace, name=meta.name, uid=meta.uid))
    return ReservationOwner(
        controller=ControllerReference(
            api_version=controller.api_version,
            kind=controller.kind,
            name=controller.name,
            uid=controller.uid,
            controller=True,
            namespace=meta.namespace,
        )
    )


def _elsewhere(affinity: dict[str, Any], node: str) -> dict[str, Any]:
    """Return an affinity that excludes a node, in each of the terms of which one must hold."""
    on_nodes = dict(affinity.get("nodeAffinity") or {})
    required = on_nodes.get(NODE_NAMES) or {}
    terms = required.get("nodeSelectorTerms") or [{}]
    excluded = {"key": "metadata.name", "operator": "NotIn", "values": [node]}
    on_nodes[NODE_NAMES] = {
        "nodeSelectorTerms": [{**term, "matchFields": [*(term.get("matchFields") or []), excluded]} for term in terms]
    }
    return {**affinity, "nodeAffinity": on_nodes}
