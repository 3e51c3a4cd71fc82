"""Rates of networks in Koordinator's fields, and the default shares of its classes."""

from dataclasses import dataclass

from api.kube.resources import QuantityError, parse_quantity
from api.qos import QoSClass
from koordlet.strategies.strategy import StrategySettings


class PodNetwork(StrategySettings, frozen=True):
    """networkQOS of a pod's annotation: quantities of bits per second, never percents."""

    ingress_limit: int | str = 0
    egress_limit: int | str = 0


@dataclass(frozen=True, slots=True)
class Share:
    """Default share and priority of a class."""

    percent: int
    priority: int


SHARES = {QoSClass.SYSTEM: Share(40, 1), QoSClass.LS: Share(30, 2), QoSClass.BE: Share(30, 3)}


def bytes_per_second(asked: int | str, total_bits: int) -> int:
    """Return whole bytes per second, at least 1, of a percent of the total or of bits per second as a quantity.

    Raises ValueError where a percent has no total or the text is no quantity.
    """
    if isinstance(asked, int):
        if total_bits <= 0:
            raise ValueError("a percent needs the node's bandwidth; set systemStrategy.totalNetworkBandwidth")
        return max(total_bits * asked // 100 // 8, 1)
    try:
        bits = parse_quantity(asked)
    except QuantityError as error:
        raise ValueError(f"{error}; write bits per second like 10M") from error
    if bits <= 0:
        raise ValueError(f"a bandwidth of {asked!r} is none; leave it out for no limit")
    return max(bits // 8, 1)
