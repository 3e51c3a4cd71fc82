"""A pod as the scheduler holds it, and the class of pods that all schedule alike.

Pods of one workload differ in name and little else. Everything that filters and scores may depend on belongs
to the class (`PodClass`), found by a key over the scheduling-relevant fields, so that work done for one pod of
a workload serves all.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.kube.declared_features import needed_features
from api.kube.objects import Pod, Volume
from api.kube.pod_requests import Quantities, effective_requests, held_amounts
from api.kube.resources import CPU, MEMORY, PODS, Resources, parse_resources
from api.protocol import (
    ANNOTATION_DEVICE_ALLOCATED,
    ANNOTATION_NETWORK_TOPOLOGY_INDEX,
    ANNOTATION_RESERVATION_ALLOCATED,
    ANNOTATION_RESOURCE_STATUS,
    DEPRECATED_RESOURCES,
    LABEL_SCHEDULER_NAME,
)
from scheduler.cluster_state.columns import Row

MAX_AMOUNT = 2**52
"""A larger request counts as this much, and no node offers it: sums over a node's pods then fit into int64."""

DEFAULT_CPU_MILLICORES = 100
DEFAULT_MEMORY_BYTES = 200 * 1024 * 1024
"""Amounts that a container without a request counts with in scores (kube-scheduler's non-zero defaults)."""

IDENTITY_LABELS = frozenset(
    {
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
    }
)
"""Labels that tell members of one workload apart; no class depends on them."""

DECIDED_ANNOTATIONS = frozenset(
    {
        ANNOTATION_DEVICE_ALLOCATED,
        ANNOTATION_RESERVATION_ALLOCATED,
        ANNOTATION_RESOURCE_STATUS,
        "internal.scheduling.koordinator.sh/bind-gang-group-id",
        "internal.scheduling.koordinator.sh/bind-gang-member-count",
    }
)
"""Annotations that the scheduler alone writes, with the binding. On a pending pod they are its author's and count for
nothing; no class depends on them."""

IDENTITY_ANNOTATIONS = frozenset({ANNOTATION_NETWORK_TOPOLOGY_INDEX})
"""Annotations that tell members of one workload apart; no class depends on them."""
NOT_OF_CLASS = DECIDED_ANNOTATIONS | IDENTITY_ANNOTATIONS

CLASS_ANNOTATION_PARTS = ("koordinator.sh/", "scheduling.", "k8s.io/")
"""Only annotations whose key contains one of these can matter to placement."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class PodClass:
    """Requests and fields shared by pods that schedule alike. Identity is the object; `key` only finds it.

    What is kept by class is kept weakly, so that it goes with the last pod of the class.
    """

    key: bytes
    requests: Resources
    """Effective requests with `pods` = 1: containers, sidecars, init containers, overhead."""
    nonzero: tuple[int, int]
    """CPU millicores and memory bytes with the defaults for containers that ask for nothing."""
    _vectors: dict[tuple[int, int], NDArray[np.int64]] = field(default_factory=dict)

    def vector(self, columns: dict[str, int], width: int) -> NDArray[np.int64]:
        """Requests as a row of the snapshot's matrices, int64[width]; names without a column are left out."""
        known = (len(columns), width)
        row = self._vectors.get(known)
        if row is None:
            row = np.zeros(width, dtype=np.int64)
            for name, amount in self.requests.items():
                if name in columns:
                    row[columns[name]] = min(amount, MAX_AMOUNT)
            self._vectors = {known: row}
        return row


@dataclass(slots=True, eq=False)
class PodInfo:
    """One pod: the object as last seen, its class, and what the scheduler decided about it."""

    pod: Pod
    cls: PodClass
    patch: dict[str, str] = field(default_factory=dict)
    """Annotations decided at Reserve; they travel with the binding and read like the pod's own. Of a bound pod, those
    of DECIDED_ANNOTATIONS as they were when it was first seen bound."""
    outside: bool = False
    """Another scheduler queues the pod and places it through the extender."""
    stand_in: bool = False
    """The pod stands for a reservation; no API object backs it."""

    @property
    def uid(self) -> str:
        """The pod's identity in every index."""
        return self.pod.metadata.uid

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.pod.metadata.key

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return self.pod.metadata.namespace

    @property
    def labels(self) -> dict[str, str]:
        """The pod's labels."""
        return self.pod.metadata.labels

    @property
    def scheduler_name(self) -> str:
        """Name of the scheduler that the pod asks for; Koordinator's label goes before the field."""
        return self.labels.get(LABEL_SCHEDULER_NAME, self.pod.spec.scheduler_name)

    @property
    def priority(self) -> int:
        """`spec.priority`, 0 when unset."""
        return self.pod.spec.priority or 0

    @property
    def requests(self) -> Resources:
        """Effective requests (see `PodClass.requests`)."""
        return self.cls.requests

    def annotation(self, key: str) -> str | None:
        """An annotation, decided or on the object; of those that only the scheduler writes, what was decided."""
        value = self.patch.get(key)
        if value is not None or key in DECIDED_ANNOTATIONS:
            return value
        return self.pod.metadata.annotations.get(key)

    def believe(self) -> None:
        """Take over what the object says was decided: it is bound, and a scheduler that is trusted bound it."""
        annotations = self.pod.metadata.annotations
        if annotations:
            self.patch = {key: annotations[key] for key in DECIDED_ANNOTATIONS if annotations.get(key)}

    @property
    def decided(self) -> dict[str, str]:
        """What was decided of DECIDED_ANNOTATIONS."""
        return {key: text for key, text in self.patch.items() if key in DECIDED_ANNOTATIONS}


@dataclass(slots=True)
class Placement:
    """The row that a pod holds its share of. `assumed` until the API server shows it bound."""

    info: PodInfo
    row: Row
    assumed: bool


class PodClasses:
    """Finds or makes the class of a pod. A class lives as long as its pods; the `recent` last made live on without."""

    def __init__(self, recent: int = 512) -> None:
        self._known: WeakValueDictionary[bytes, PodClass] = WeakValueDictionary()
        self._recent: deque[PodClass] = deque(maxlen=recent)
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")

    def __len__(self) -> int:
        return len(self._known)

    def info(self, pod: Pod, *, placed: bool = False) -> PodInfo:
        """Wrap a pod. Raises QuantityError when a request cannot be read.

        A `placed` pod is attempted no more: it shares the class of its pending siblings, whatever node it is on.
        """
        key = self._encoder.encode(_relevant(pod, "" if placed else pod.spec.node_name))
        cls = self._known.get(key)
        if cls is None:
            cls = self._known[key] = PodClass(key, requests_of(pod) | {PODS: 1}, nonzero_requests(pod))
            self._recent.append(cls)
        return PodInfo(pod, cls)


def _relevant(pod: Pod, node_name: str) -> tuple[Any, ...]:
    meta, spec = pod.metadata, pod.spec
    labels = {key: value for key, value in meta.labels.items() if key not in IDENTITY_LABELS}
    annotations = {
        key: value
        for key, value in meta.annotations.items()
        if any(part in key for part in CLASS_ANNOTATION_PARTS) and key not in NOT_OF_CLASS
    }
    owner = meta.controlled_by
    return (
        meta.namespace,
        labels,
        annotations,
        (owner.kind, owner.name, owner.uid) if owner else None,
        [(c.image, c.resources, c.ports, c.restart_policy) for c in spec.containers],
        [(c.image, c.resources, c.ports, c.restart_policy) for c in spec.init_containers],
        spec.resources,
        spec.overhead,
        node_name,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.topology_spread_constraints,
        (spec.priority, spec.priority_class_name, spec.preemption_policy, spec.scheduler_name),
        [volume for volume in spec.volumes if _placed(volume)],
        pod.status.qos_class,
        held_amounts(pod, read_amounts),
        (spec.resource_claims, pod.status.resource_claim_statuses) if spec.resource_claims else None,
        needed_features(spec),
        spec.scheduling_group,
        meta.name if any(volume.ephemeral for volume in spec.volumes) else "",
    )


def _placed(volume: Volume) -> bool:
    """Return whether a volume can bear on placement at all."""
    return any(
        (
            volume.persistent_volume_claim,
            volume.ephemeral,
            volume.gce_persistent_disk,
            volume.aws_elastic_block_store,
            volume.iscsi,
            volume.rbd,
            volume.azure_disk,
            volume.cinder,
        )
    )


def read_amounts(quantities: Quantities) -> Resources:
    """Return amounts under the current names of resources. Raises QuantityError."""
    return parse_resources({DEPRECATED_RESOURCES.get(name, name): text for name, text in quantities.items()})


def requests_of(pod: Pod) -> Resources:
    """Return effective requests under the current names of resources. Raises QuantityError."""
    return effective_requests(pod, read_amounts)


def nonzero_requests(pod: Pod) -> tuple[int, int]:
    """Return CPU millicores and memory bytes as scores count them: defaults where a container asks for nothing."""

    def counted(asked: Resources) -> Resources:
        return {
            CPU: asked.get(CPU, DEFAULT_CPU_MILLICORES),
            MEMORY: asked.get(MEMORY, DEFAULT_MEMORY_BYTES),
        }

    found = effective_requests(pod, read_amounts, counted)
    return min(found.get(CPU, 0), MAX_AMOUNT), min(found.get(MEMORY, 0), MAX_AMOUNT)
