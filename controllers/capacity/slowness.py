"""Slowness of a node from its annotation. Pure."""

import math
from collections.abc import Mapping

from api.protocol import ANNOTATION_SLOW_RATIO

MOST = 4.0


def slow_ratio(annotations: Mapping[str, str]) -> float:
    """Return how many times slower than the fleet a node is, 1 to 4; 1 without a readable annotation."""
    try:
        ratio = float(annotations.get(ANNOTATION_SLOW_RATIO, "1"))
    except ValueError:
        return 1.0
    return min(max(ratio, 1.0), MOST) if math.isfinite(ratio) else 1.0
