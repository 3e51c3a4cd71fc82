"""GPUs for containers: which cards they see, and their share of one."""

from typing import ClassVar

from api.kube.resources import QuantityError
from api.protocol import (
    ANNOTATION_DEVICE_ALLOCATED,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    LABEL_GPU_ISOLATION_PROVIDER,
    NVIDIA_GPU,
)
from koordlet.hooks.amounts import bounded_quantity
from koordlet.hooks.node import NodeFacts
from koordlet.hooks.resources import NOTHING, ContainerResources, Mount
from koordlet.hooks.rule import Rule, RuleProblem
from koordlet.hooks.scheduled import devices, requests_any
from koordlet.identity.pods import ContainerRole, PodContainer, PodFacts

HAMI = "HAMi-core"
LOCK = "/tmp/vgpulock"  # noqa: S108 - HAMi's
_NAMES = frozenset((GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, NVIDIA_GPU))


class GpuEnv(Rule):
    """The minors of the pod's GPUs, and for a share isolated by HAMi its limits and library.

    Applies: containers that request GPUs of pods with the annotation device-allocated; all of them where the spec is
        not known
    Knobs: environment, mounts
    Source: Koordinator GPUEnvInject
    """

    features: ClassVar = {"GPUEnvInject": False}

    def container(self, pod: PodFacts, container: PodContainer, node: NodeFacts) -> ContainerResources:
        """Return the environment of one container."""
        given = devices(pod, "gpu")
        if not given or container.role is ContainerRole.SANDBOX or not requests_any(pod, container, _NAMES):
            return NOTHING
        env = {"NVIDIA_VISIBLE_DEVICES": ",".join(str(device.minor) for device in given)}
        if pod.labels.get(LABEL_GPU_ISOLATION_PROVIDER) != HAMI:
            return ContainerResources(env=env)
        try:
            amounts = {name: bounded_quantity(text) for name, text in given[0].resources.items()}
        except QuantityError as error:
            raise RuleProblem(f"{ANNOTATION_DEVICE_ALLOCATED}: {error}") from error
        if GPU_MEMORY_RATIO not in amounts:
            raise RuleProblem(f"{ANNOTATION_DEVICE_ALLOCATED}: no {GPU_MEMORY_RATIO}, which isolation needs")
        if amounts[GPU_MEMORY_RATIO] >= 100:
            return ContainerResources(env=env)
        if GPU_MEMORY not in amounts:
            raise RuleProblem(f"{ANNOTATION_DEVICE_ALLOCATED}: no {GPU_MEMORY}, which isolation needs")
        env["CUDA_DEVICE_MEMORY_LIMIT"] = str(amounts[GPU_MEMORY])
        if GPU_CORE in amounts:
            env["CUDA_DEVICE_SM_LIMIT"] = str(amounts[GPU_CORE])
        env["LD_PRELOAD"] = node.hami_library
        return ContainerResources(env=env, mounts=(Mount(node.hami_library, node.hami_library), Mount(LOCK, LOCK)))
