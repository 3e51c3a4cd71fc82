"""Settings by QoS class, as resourceQOSStrategy holds them: the block that applies to a pod or a directory."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from api.qos import QoSClass
from koordlet.strategies.view import KubeQoS

C_co = TypeVar("C_co", covariant=True)
C = TypeVar("C")


class ByClass(Protocol[C_co]):
    """Settings with a block for each class."""

    @property
    def lsr_class(self) -> C_co:
        """LSR, LSE and Kubernetes' Guaranteed."""

    @property
    def ls_class(self) -> C_co:
        """LS and Burstable."""

    @property
    def be_class(self) -> C_co:
        """BE and BestEffort."""

    @property
    def system_class(self) -> C_co:
        """SYSTEM."""


def block_of(settings: ByClass[C], qos: QoSClass) -> C:
    """Return the block that applies to a class; without a class, that of LS."""
    if qos in (QoSClass.LSE, QoSClass.LSR):
        return settings.lsr_class
    if qos is QoSClass.BE:
        return settings.be_class
    return settings.system_class if qos is QoSClass.SYSTEM else settings.ls_class


def block_of_directory(settings: ByClass[C], kube_qos: KubeQoS) -> C:
    """Return the block that applies to one of the kubelet's directories."""
    if kube_qos is KubeQoS.GUARANTEED:
        return settings.lsr_class
    return settings.be_class if kube_qos is KubeQoS.BEST_EFFORT else settings.ls_class


def in_each_class(block: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return a resourceQOSStrategy table with the same block for every class and for the root cgroup."""
    return dict.fromkeys(("lsrClass", "lsClass", "beClass", "systemClass", "cgroupRoot"), block)
