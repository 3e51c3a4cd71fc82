"""Hooks by name: the gRPC method that a hook server answers, and whether it runs before or after the CRI call."""

import enum

HOOK_SERVICE = "runtime.v1alpha1.RuntimeHookService"


class HookType(enum.Enum):
    """Hook, with its name in registration files."""

    PRE_RUN_POD_SANDBOX = "PreRunPodSandbox"
    POST_STOP_POD_SANDBOX = "PostStopPodSandbox"
    PRE_CREATE_CONTAINER = "PreCreateContainer"
    PRE_START_CONTAINER = "PreStartContainer"
    POST_START_CONTAINER = "PostStartContainer"
    POST_STOP_CONTAINER = "PostStopContainer"
    PRE_UPDATE_CONTAINER_RESOURCES = "PreUpdateContainerResources"

    @property
    def method(self) -> str:
        """Full gRPC method of the hook service."""
        return f"/{HOOK_SERVICE}/{self.value}Hook"

    @property
    def is_before(self) -> bool:
        """Whether the hook runs before the CRI call, so that its answer and its failure count."""
        return self.value.startswith("Pre")

    @property
    def is_of_pod(self) -> bool:
        """Whether its messages are those of a pod sandbox, not of a container."""
        return self.value.endswith("PodSandbox")


NRI_ONLY = frozenset({"PreRemoveRunPodSandbox"})
"""Names that registration files may list and that no CRI call of a proxy has."""
