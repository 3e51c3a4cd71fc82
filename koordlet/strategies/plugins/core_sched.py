"""Core scheduling groups, as Koordinator names them: which containers may share a core at the same time."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from msgspec import field

from api.intents import Intent, Knob, Strength
from api.protocol import LABEL_CORE_SCHED_GROUP_ID, LABEL_CORE_SCHED_POLICY
from api.qos import QoSClass
from koordlet.strategies.qos_settings import block_of, in_each_class
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import Group, NodeView

SHARED = "shared"
"""Group of pods that name none."""
NONE = "0"


class CoreBlock(StrategySettings, frozen=True):
    """cpuQOS of one class."""

    enable: bool = False
    core_expeller: bool = False
    """Whether the class keeps others off the core while it runs."""


class CoreClass(StrategySettings, frozen=True):
    """One class."""

    cpu_qos: CoreBlock = field(default=CoreBlock(), name="cpuQOS")


class CorePolicies(StrategySettings, frozen=True):
    """Mechanism; core scheduling and identities exclude each other."""

    cpu_policy: Literal["groupIdentity", "coreSched"] = "groupIdentity"


class CoreSchedSettings(StrategySettings, frozen=True):
    """cpuQOS of resourceQOSStrategy."""

    policies: CorePolicies = CorePolicies()
    lsr_class: CoreClass = CoreClass(cpu_qos=CoreBlock(core_expeller=True))
    ls_class: CoreClass = CoreClass(cpu_qos=CoreBlock(core_expeller=True))
    be_class: CoreClass = CoreClass()
    system_class: CoreClass = CoreClass()


class CoreSched(Strategy[CoreSchedSettings]):
    """Core scheduling groups of containers of all classes but SYSTEM: no other group runs on a sibling.

    Reads: classes
    Intents: core scheduling groups
    Pods: labels
    Default: off, gate closed
    Source: Koordinator
    """

    section: ClassVar[str] = "resourceQOSStrategy"
    features: ClassVar[Mapping[str, bool]] = {"CoreSched": False}
    settings_type = CoreSchedSettings
    is_protocol_state: ClassVar[bool] = True
    example: ClassVar[Mapping[str, Any]] = in_each_class({"cpuQOS": {"enable": True}})

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return the same on every tick in which pods and settings stay."""
        if not self.gates["CoreSched"] or self.settings.policies.cpu_policy != "coreSched":
            return []
        return [
            self.set_knob(container.path, Knob.CORE_SCHED, group, f"shares cores within {group}", Strength.MILD)
            for pod in view.pods
            for group in (core_group(pod, self.settings),)
            if group
            for container in view.containers(pod)
            if container.active
        ]


def core_group(pod: Group, settings: CoreSchedSettings) -> str:
    """Return a pod's group: that of its label, its own, or the shared one; empty where its class has none."""
    block = block_of(settings, pod.effective_qos).cpu_qos
    if pod.effective_qos is QoSClass.SYSTEM or not block.enable:
        return ""
    policy = pod.labels.get(LABEL_CORE_SCHED_POLICY)
    if policy == "none":
        return NONE
    name = pod.uid if policy == "exclusive" else pod.labels.get(LABEL_CORE_SCHED_GROUP_ID) or SHARED
    return f"{name}-expeller" if block.core_expeller else name
