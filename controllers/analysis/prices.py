"""Prices of capacity and harm, and the quota of each namespace, from a TOML file. Pure."""

from typing import Annotated, Literal

import msgspec

Payer = Literal["quota", "namespace", "workload"]
Price = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Price file; amounts in any one currency."""

    cpu_core_hour: Price = 1.0
    memory_gib_hour: Price = 0.1
    lost_hour: Price = 1.0
    """Of an hour that a victim loses."""
    quotas: dict[str, str] = {}
    """Quota by namespace; a namespace without one pays under its own name."""


def parameters(prices: Prices, by: Payer) -> dict[str, str]:
    """Return the parameters of the question of cost: numbers, and expressions with every text quoted."""
    return {
        "cpu_core_hour": repr(float(prices.cpu_core_hour)),
        "memory_gib_hour": repr(float(prices.memory_gib_hour)),
        "lost_hour": repr(float(prices.lost_hour)),
        "by": _payer(prices, by, ""),
        "culprit_by": _payer(prices, by, "culprit_"),
    }


def _payer(prices: Prices, by: Payer, prefix: str) -> str:
    if by != "quota":
        return f"{prefix}{by}"
    whens = " ".join(f"WHEN {_text(namespace)} THEN {_text(quota)}" for namespace, quota in prices.quotas.items())
    return f"CASE {prefix}namespace {whens} ELSE {prefix}namespace END" if whens else f"{prefix}namespace"


def _text(value: str) -> str:
    """Return a SQL literal. Raises ValueError for what the two engines read differently."""
    if "'" in value or "\\" in value:
        raise ValueError(f"{value!r}: a namespace or quota has no quotes or backslashes")
    return f"'{value}'"
