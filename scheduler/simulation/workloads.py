"""A generated day of a cluster: services that breathe with the clock, batch work that does not, pods that come and go.

Everything follows from a seed, and nothing from the placement, so that every policy meets the same day.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from api.crds import (
    ResourceInterference,
    SensitivityBin,
    WorkloadProfile,
    WorkloadProfileSpec,
    WorkloadProfileStatus,
    WorkloadReference,
)
from api.kube.meta import ObjectMeta, OwnerReference
from api.kube.objects import Container, Pod, PodSpec, ResourceRequirements
from api.protocol import LABEL_QOS_CLASS, SCHEDULER_NAME
from scheduler.simulation.trace import NodeShape

DAY_SECONDS = 86_400.0
HOUR_SECONDS = 3_600.0
GIB = 1 << 30
NAMESPACE = "day"


@dataclass(frozen=True, slots=True)
class WorkloadShape:
    """One workload: what each replica asks for, really uses, bears and does."""

    name: str
    qos: str
    cpu_millicores: int
    memory_bytes: int
    replicas: int
    mean_use: float
    """Mean CPU use as a share of the request."""
    swing: float
    """Amplitude of the daily wave as a share of the mean, 0..1."""
    peak_seconds: float
    """Time of day of the highest use."""
    lifetime_seconds: float
    """Mean life of a pod."""
    sensitivity: dict[str, float] = field(default_factory=dict)
    aggressiveness: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodLife:
    """One pod of the day."""

    uid: str
    workload: WorkloadShape
    born_seconds: float
    gone_seconds: float
    factor: float
    """This pod's use relative to its workload's."""


def generate_workloads(nodes: Sequence[NodeShape], seed: int, *, requested: float = 0.7) -> list[WorkloadShape]:
    """Workloads whose requests fill `requested` of the nodes' CPU: two thirds services, the rest batch."""
    random = np.random.default_rng(seed)
    capacity = sum(node.cpu_millicores for node in nodes)
    node_cpu = capacity / len(nodes)
    workloads: list[WorkloadShape] = []
    left = requested * capacity
    while left > 0:
        shape = _workload(random, len(workloads), node_cpu, batch=len(workloads) % 3 == 2)
        left -= shape.cpu_millicores * shape.replicas
        workloads.append(shape)
    return workloads


def _workload(random: np.random.Generator, number: int, node_cpu: float, *, batch: bool) -> WorkloadShape:
    cpu = int(random.choice([1000, 2000, 4000, 6000]))
    use = float(random.uniform(0.5, 1.1) if batch else random.uniform(0.1, 0.7))
    pressure = use * cpu / node_cpu
    if batch:
        bears = {"cpu": random.uniform(0.0, 0.02)}
        does = {
            "cpu": pressure,
            "cache": pressure * random.uniform(0.5, 2.0),
            "memory-bandwidth": pressure * random.uniform(0.5, 3.0),
        }
    else:
        bears = {
            "cpu": random.uniform(0.02, 0.2),
            "cache": random.uniform(0.0, 0.15),
            "memory-bandwidth": random.uniform(0.0, 0.1),
        }
        does = {"cpu": pressure, "cache": pressure * 0.3}
    return WorkloadShape(
        name=f"{'batch' if batch else 'service'}-{number}",
        qos="LS",
        cpu_millicores=cpu,
        memory_bytes=cpu * GIB // 500,
        replicas=int(random.integers(4, 20)),
        mean_use=use,
        swing=float(random.uniform(0.0, 0.1) if batch else random.uniform(0.3, 0.8)),
        peak_seconds=float(random.normal(14 * HOUR_SECONDS, 3 * HOUR_SECONDS)),
        lifetime_seconds=float(random.uniform(1, 4) if batch else random.uniform(6, 24)) * HOUR_SECONDS,
        sensitivity={name: float(value) for name, value in bears.items()},
        aggressiveness={name: float(value) for name, value in does.items()},
    )


def lives(workloads: Sequence[WorkloadShape], seconds: float, seed: int) -> list[PodLife]:
    """Every pod of the day in order of birth: each replica is replaced when it ends."""
    random = np.random.default_rng((seed, 1))
    born = []
    for shape in workloads:
        for replica in range(shape.replicas):
            clock, generation = float(random.uniform(0, 600.0)), 0
            while clock < seconds:
                life = float(random.exponential(shape.lifetime_seconds)) + 300.0
                uid = f"{shape.name}-{replica}-{generation}"
                born.append(PodLife(uid, shape, clock, clock + life, float(random.lognormal(0.0, 0.25))))
                clock, generation = clock + life, generation + 1
    return sorted(born, key=lambda life: (life.born_seconds, life.uid))


def use_millicores(life: PodLife, seconds: float) -> float:
    """CPU that the pod wants at a time of day: request x mean x own factor x the daily wave."""
    shape = life.workload
    wave = 1 + shape.swing * math.cos(2 * math.pi * (seconds - shape.peak_seconds) / DAY_SECONDS)
    return shape.cpu_millicores * shape.mean_use * life.factor * wave


def pod_of(life: PodLife) -> Pod:
    """The pending Pod of a life, owned by its workload."""
    shape = life.workload
    requests: dict[str, str | int | float] = {"cpu": f"{shape.cpu_millicores}m", "memory": shape.memory_bytes}
    owner = OwnerReference(api_version="apps/v1", kind="StatefulSet", name=shape.name, uid=shape.name, controller=True)
    return Pod(
        metadata=ObjectMeta(
            name=life.uid,
            namespace=NAMESPACE,
            uid=life.uid,
            labels={LABEL_QOS_CLASS: shape.qos},
            owner_references=[owner],
        ),
        spec=PodSpec(
            containers=[Container(name="main", resources=ResourceRequirements(requests=requests))],
            scheduler_name=SCHEDULER_NAME,
        ),
    )


def profile_of(shape: WorkloadShape) -> WorkloadProfile:
    """The WorkloadProfile that says what the workload bears and does."""
    names = sorted({*shape.sensitivity, *shape.aggressiveness})
    return WorkloadProfile(
        metadata=ObjectMeta(name=shape.name, namespace=NAMESPACE),
        spec=WorkloadProfileSpec(
            workload=WorkloadReference(api_version="apps/v1", kind="StatefulSet", name=shape.name), container="main"
        ),
        status=WorkloadProfileStatus(
            samples=1000,
            resources=[
                ResourceInterference(
                    name=name,
                    sensitivity=[
                        SensitivityBin(
                            load_from=0.0,
                            load_to=2.0,
                            lost_seconds_per_pressure=shape.sensitivity.get(name, 0.0),
                            samples=1000,
                        )
                    ],
                    aggressiveness=shape.aggressiveness.get(name, 0.0),
                )
                for name in names
            ],
        ),
    )
