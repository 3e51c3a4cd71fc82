"""Vendor share templates: cards that are cut in fixed shapes give the smallest shape that covers a request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.kube.resources import fits
from scheduler.devices.request import NPU_CORE, DeviceDemand

TEMPLATED = (NPU_CORE,)
"""Resources whose requests are served by template on models that have any."""


@dataclass(frozen=True, slots=True)
class Template:
    """One shape of a card: its name and what it takes of the card."""

    name: str
    amounts: Mapping[str, int]


def applies(templates: Sequence[Template], demand: DeviceDemand) -> bool:
    """Return whether the demand is for a share of a card that comes in templates."""
    return bool(templates) and demand.shared and any(name in demand.each for name in TEMPLATED)


def smallest_cover(templates: Sequence[Template], each: Mapping[str, int]) -> Template | None:
    """The smallest template that gives at least `each`, by the requested resources in order; None without one."""
    covering = [template for template in templates if fits(each, template.amounts)]
    order = sorted(each, key=lambda name: (name not in TEMPLATED, name))
    return min(covering, key=lambda t: (*(t.amounts.get(name, 0) for name in order), t.name), default=None)
