"""Merge patches (RFC 7386) that turn one document into another."""

from collections.abc import Mapping
from typing import Any

from controllers.slo.layers import Plain


def difference(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> Plain:
    """Return the least patch that turns `current` into `wanted`; fields that `wanted` lacks are removed."""
    patch: Plain = {name: None for name in current if name not in wanted}
    for name, value in wanted.items():
        present = current.get(name)
        if name in current and present == value:
            continue
        if isinstance(present, Mapping) and isinstance(value, Mapping):
            patch[name] = difference(present, value)
        else:
            patch[name] = value
    return patch
