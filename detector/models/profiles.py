"""Parquet profiles as columns, and their rows by workload: the training data of models."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from api.lake import AMOUNTS, OOM_KILLS
from detector.baselines.values import WorkloadKey

_KEYS = ("workload", "container", "node_type")
_LABEL = "interference"
_NEVER_FEATURES = {*_KEYS, _LABEL, "time", *AMOUNTS, OOM_KILLS}

Columns = dict[str, NDArray[Any]]


class ProfilesRefused(ValueError):
    """The files are no profiles; the message is the reason."""


def read_profiles(paths: Sequence[Path]) -> Columns:
    """All rows of all files. Raises ImportError without pyarrow, ProfilesRefused for a file that is no profile."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pa.concat_tables([pq.read_table(path) for path in paths], promote_options="default")
    except pa.ArrowInvalid as error:
        raise ProfilesRefused(f"{', '.join(map(str, paths))}: {error}") from error
    if "workload" not in table.column_names:
        raise ProfilesRefused("the profiles have no column `workload`")
    return {name: table.column(name).to_numpy() for name in table.column_names}


def is_feature(name: str, column: NDArray[Any]) -> bool:
    """Return whether a column is a feature by default."""
    return name not in _NEVER_FEATURES and column.dtype.kind in "fiu"


def by_workload(
    columns: Columns, features: tuple[str, ...]
) -> dict[WorkloadKey, tuple[NDArray[np.float64], NDArray[np.bool_] | None]]:
    """For each workload its rows of features, shape (rows, features), and which of them were harmed, if it is known."""
    count = len(columns["workload"])
    matrix = np.stack([columns[name].astype(np.float64) for name in features], axis=1)
    harmed = columns[_LABEL].astype(np.bool_) if _LABEL in columns else None
    parts = [columns[name] if name in columns else np.full(count, "") for name in _KEYS]
    rows: dict[WorkloadKey, list[int]] = {}
    for row, (workload, container, node_type) in enumerate(zip(*parts, strict=True)):
        key = WorkloadKey(str(workload), str(container or ""), str(node_type or ""))
        rows.setdefault(key, []).append(row)
    return {key: (matrix[own], None if harmed is None else harmed[own]) for key, own in rows.items()}
