"""Network shares by class, and limits of single pods, as traffic classes of cgroups and as policers of what arrives.

Classes and shares are those of Koordinator's tc plugin: system first with 40 percent, then latency-sensitive and
best-effort work with 30 each, each class up to all of it while the others leave it idle.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta, field

from api.intents import Intent, Knob
from api.protocol import ANNOTATION_NETWORK_QOS
from api.qos import QoSClass
from koordlet.strategies.network_rates import SHARES, PodNetwork, bytes_per_second
from koordlet.strategies.qos_settings import in_each_class
from koordlet.strategies.settings import read_annotation
from koordlet.strategies.strategy import SENSITIVE, Strategy, StrategySettings
from koordlet.strategies.view import Group, KubeQoS, NodeView

Bandwidth = Annotated[int, Meta(ge=0, le=100)] | str
"""Percent of the node's bandwidth, or bits per second as a quantity; 0 is not stated."""


class NetworkBlock(StrategySettings, frozen=True):
    """networkQOS of one class."""

    enable: bool = False
    ingress_request: Bandwidth = 0
    ingress_limit: Bandwidth = 0
    egress_request: Bandwidth = 0
    egress_limit: Bandwidth = 0


class NetworkClass(StrategySettings, frozen=True):
    """One class."""

    network_qos: NetworkBlock = field(default=NetworkBlock(), name="networkQOS")


class Policies(StrategySettings, frozen=True):
    """Mechanism; with terway-qos this strategy sets nothing."""

    net_qos_policy: str = field(default="tc", name="netQOSPolicy")


class NetworkQosSettings(StrategySettings, frozen=True):
    """networkQOS of resourceQOSStrategy; the protocol's LSR class shares that of LS."""

    policies: Policies = Policies()
    ls_class: NetworkClass = NetworkClass()
    be_class: NetworkClass = NetworkClass()
    system_class: NetworkClass = NetworkClass()


class NetworkQos(Strategy[NetworkQosSettings]):
    """Traffic classes of kubepods, of its best-effort directory, of system applications and of annotated pods.

    Reads: bandwidth of the node
    Intents: traffic classes; with an ingressLimit the most that may arrive, of the best-effort directory, of kubepods
        with all that is in it, and of pods
    Pods: annotation
    Default: off, gate closed
    Source: Koordinator
    """

    section: ClassVar[str] = "resourceQOSStrategy"
    features: ClassVar[Mapping[str, bool]] = {"TCNetworkQoS": False}
    settings_type = NetworkQosSettings
    example: ClassVar[Mapping[str, Any]] = in_each_class({"networkQOS": {"enable": True}})

    @property
    def limited_classes(self) -> frozenset[QoSClass]:
        """BE and LS: the latter by the class of kubepods, and by the annotation of any pod."""
        return SENSITIVE

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return the same on every tick in which pods and settings stay."""
        if not self.gates["TCNetworkQoS"] or self.settings.policies.net_qos_policy != "tc":
            return []
        total = view.node.network_bits_per_second
        intents: list[Intent] = []
        for kube_qos, qos, block in (
            (KubeQoS.GUARANTEED, QoSClass.LS, self.settings.ls_class.network_qos),
            (KubeQoS.BEST_EFFORT, QoSClass.BE, self.settings.be_class.network_qos),
        ):
            directory = view.qos_dir(kube_qos)
            if directory is not None and block.enable:
                intents += self._class(directory.path, qos, block, total)
        if self.settings.system_class.network_qos.enable:
            for app in view.host_apps:
                if app.qos is QoSClass.SYSTEM:
                    intents += self._class(app.path, QoSClass.SYSTEM, self.settings.system_class.network_qos, total)
        for pod in view.pods:
            if pod.active and not pod.protected and ANNOTATION_NETWORK_QOS in pod.annotations:
                intents += self._pod(pod)
        return intents

    def _class(self, path: str, qos: QoSClass, block: NetworkBlock, total_bits: int) -> Iterator[Intent]:
        share = SHARES[qos]
        try:
            rate = bytes_per_second(block.egress_request or share.percent, total_bits)
            ceiling = bytes_per_second(block.egress_limit or 100, total_bits)
            bytes_per_second(block.ingress_limit or 100, total_bits)
        except ValueError as error:
            self.problems[path] = str(error)
            return
        if ceiling < rate:
            self.problems[path] = f"egressLimit of {qos} is below its egressRequest; the limit holds"
        value = f"rate={min(rate, ceiling)} ceil={ceiling} prio={share.priority}"
        yield self.set_knob(path, Knob.NET_CLASS, value, f"traffic of class {qos}")
        yield from self._arrivals(path, qos, block, total_bits)

    def _arrivals(self, path: str, qos: QoSClass, block: NetworkBlock, total_bits: int) -> Iterator[Intent]:
        """The limit of a class; the whole link needs none, and no receiver can promise a share of what others send."""
        if block.ingress_request:
            self.problems[f"{path} ingressRequest"] = "what arrives can be limited, not promised; limit other classes"
        if not block.ingress_limit or qos is QoSClass.SYSTEM:
            return
        limit = bytes_per_second(block.ingress_limit, total_bits)
        if total_bits <= 0 or limit < total_bits // 8:
            yield self.set_knob(path, Knob.NET_INGRESS, str(limit), f"at most so much may arrive for class {qos}")

    def _pod(self, pod: Group) -> Iterator[Intent]:
        asked = read_annotation(pod, ANNOTATION_NETWORK_QOS, PodNetwork(), self.problems)
        if asked.ingress_limit:
            try:
                limit = str(bytes_per_second(str(asked.ingress_limit), 0))
            except ValueError as error:
                self.problems[pod.path] = str(error)
                return
            reason = f"{pod.name} asks for at most {asked.ingress_limit} bit/s to it"
            yield self.set_knob(pod.path, Knob.NET_INGRESS, limit, reason)
        if not asked.egress_limit:
            return
        try:
            ceiling = bytes_per_second(str(asked.egress_limit), 0)
        except ValueError as error:
            self.problems[pod.path] = str(error)
            return
        share = SHARES[QoSClass.BE if pod.effective_qos is QoSClass.BE else QoSClass.LS]
        value = f"rate={ceiling} ceil={ceiling} prio={share.priority}"
        yield self.set_knob(pod.path, Knob.NET_CLASS, value, f"{pod.name} asks for at most {asked.egress_limit} bit/s")
