"""Scheduling identity by class: bvt on kernels that have it, and cpu.idle for work that runs on idle cycles only.

Values are Koordinator's. cpu.idle is set on pods, never on the kubelet's directories: the kubelet writes weights there
and fails to start where the kernel refuses. Where bvt is missing, best-effort pods with a negative identity become idle
instead.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, field

from api.intents import Intent, Knob, Strength
from api.protocol import ANNOTATION_CPU_QOS
from api.qos import QoSClass
from koordlet.strategies.qos_settings import block_of, block_of_directory, in_each_class
from koordlet.strategies.settings import read_annotation
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import Group, GroupKind, KubeQoS, NodeView

SYSCTL = "kernel/sched_group_identity_enabled"


class CpuBlock(StrategySettings, frozen=True):
    """cpuQOS of one class or of a pod's annotation."""

    enable: bool = False
    group_identity: Annotated[int, Meta(ge=-1, le=2)] = 0
    sched_idle: Annotated[int, Meta(ge=0, le=1)] = 0


class CpuClass(StrategySettings, frozen=True):
    """One class."""

    cpu_qos: CpuBlock = field(default=CpuBlock(), name="cpuQOS")


class CpuPolicies(StrategySettings, frozen=True):
    """Mechanism; core scheduling and identities exclude each other."""

    cpu_policy: Literal["groupIdentity", "coreSched"] = "groupIdentity"


class GroupIdentitySettings(StrategySettings, frozen=True):
    """cpuQOS of resourceQOSStrategy."""

    policies: CpuPolicies = CpuPolicies()
    lsr_class: CpuClass = CpuClass(cpu_qos=CpuBlock(group_identity=2))
    ls_class: CpuClass = CpuClass(cpu_qos=CpuBlock(group_identity=2))
    be_class: CpuClass = CpuClass(cpu_qos=CpuBlock(group_identity=-1))
    system_class: CpuClass = CpuClass()

    def __post_init__(self) -> None:
        for key, block in (
            ("lsrClass", self.lsr_class),
            ("lsClass", self.ls_class),
            ("systemClass", self.system_class),
        ):
            if block.cpu_qos.sched_idle:
                raise ValueError(
                    f"{key}.cpuQOS.schedIdle would starve latency-sensitive work; only beClass may be idle"
                )


class GroupIdentity(Strategy[GroupIdentitySettings]):
    """Scheduling identity of pods, host applications and the kubelet's directories; that of protected pods is only
    raised.

    Reads: classes, knobs that the kernel lacks
    Intents: `cpu.bvt_warp_ns`, `cpu.idle`
    Pods: annotation
    Default: off
    Source: Koordinator
    """

    section: ClassVar[str] = "resourceQOSStrategy"
    features: ClassVar[Mapping[str, bool]] = {"GroupIdentity": True}
    settings_type = GroupIdentitySettings
    is_protocol_state: ClassVar[bool] = True
    example: ClassVar[Mapping[str, Any]] = in_each_class({"cpuQOS": {"enable": True}})

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return the same on every tick in which pods and settings stay."""
        if not self.gates["GroupIdentity"]:
            return []
        intents: list[Intent] = list(self._idle(view))
        if self.settings.policies.cpu_policy == "groupIdentity" and Knob.CPU_BVT not in view.node.lacking:
            identities = list(self._identities(view))
            if identities:
                intents.append(self.set_knob(SYSCTL, Knob.SYSCTL, "1", "group identities need this sysctl"))
            intents += identities
        return intents

    def _idle(self, view: NodeView) -> Iterator[Intent]:
        block = self.settings.be_class.cpu_qos
        instead = block.group_identity < 0 and Knob.CPU_BVT in view.node.lacking
        instead = instead and self.settings.policies.cpu_policy == "groupIdentity"
        if not block.enable or not (block.sched_idle or instead):
            return
        reason = "best-effort work runs on idle cycles only"
        for pod in view.pods:
            if pod.effective_qos is QoSClass.BE and not pod.protected:
                yield self.set_knob(pod.path, Knob.CPU_IDLE, "1", reason, Strength.INVISIBLE)

    def _identities(self, view: NodeView) -> Iterator[Intent]:
        for group in view.groups:
            identity = self._identity(group)
            if identity and not (group.protected and identity < 0):
                reason = f"identity of its class: {identity}"
                yield self.set_knob(group.path, Knob.CPU_BVT, str(identity), reason, Strength.INVISIBLE)

    def _identity(self, group: Group) -> int:
        """Return the identity of a group; 0 for those left alone, the Guaranteed directory and containers among
        them."""
        if group.kind is GroupKind.CONTAINER or (
            group.kind is GroupKind.QOS_DIR and group.kube_qos is KubeQoS.GUARANTEED
        ):
            return 0
        if group.kind is GroupKind.QOS_DIR:
            block = block_of_directory(self.settings, group.kube_qos).cpu_qos
        else:
            block = self._block_of(group)
        return block.group_identity if block.enable else 0

    def _block_of(self, group: Group) -> CpuBlock:
        qos = group.qos if group.kind is GroupKind.HOST_APP else group.effective_qos
        block = block_of(self.settings, qos).cpu_qos
        if qos is QoSClass.LSR and group.qos is QoSClass.NONE and not block.enable:
            return self.settings.ls_class.cpu_qos
        if qos is QoSClass.LS and ANNOTATION_CPU_QOS in group.annotations:
            return read_annotation(group, ANNOTATION_CPU_QOS, CpuBlock(), self.problems)
        return block
