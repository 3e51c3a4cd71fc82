"""Values of the anomaly models' features in one tick."""

import numpy as np

from detector.arrays import Floats
from detector.models.features import FEATURES, Feature
from detector.symptom import ratio
from detector.view import View


def features(view: View, wanted: tuple[str, ...] | None = None) -> tuple[tuple[str, ...], Floats]:
    """Return names and values, shape (cgroups, names): the wanted ones in their order, else all that are measured.

    A wanted feature that is not measured or not known is NaN throughout.
    """
    names = tuple(FEATURES) if wanted is None else wanted
    made = {name: _value(view, FEATURES[name]) if name in FEATURES else None for name in names}
    kept = [name for name in names if made[name] is not None] if wanted is None else list(names)
    matrix = np.full((len(view.ids), len(kept)), np.nan)
    for place, name in enumerate(kept):
        column = made[name]
        if column is not None:
            matrix[:, place] = column
    return tuple(kept), matrix


def _value(view: View, feature: Feature) -> Floats | None:
    if not feature.is_ratio:
        return view.total(*feature.columns)
    part, whole = feature.columns
    return ratio(view.rate(part), view.rate(whole)) if view.has(part, whole) else None
