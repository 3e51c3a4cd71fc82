"""koord-detector: what people do with the detector away from a node."""

import sys
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from detector.baseline_values import WorkloadKey
from detector.models import SCHEMA, ModelFile, encode_models
from detector.models_fit import FitPolicy, fit_profile

_KEYS = ("workload", "container", "node_type")
_LABEL = "interference"
_NEVER_FEATURES = {*_KEYS, _LABEL, "time"}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Judge recorded nodes and train what judges them."""


@main.command()
@click.argument("profiles", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--output", "-o", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Model file.")
@click.option("--feature", "-f", "wanted", multiple=True, help="Column to learn; default: every numeric column.")
@click.option("--min-samples", default=100, show_default=True, help="Workloads with fewer get no model.")
@click.option("--seed", default=0, show_default=True, help="Equal seeds and profiles give equal models.")
def train(profiles: tuple[Path, ...], output: Path, wanted: tuple[str, ...], min_samples: int, seed: int) -> None:
    """Fit an anomaly model for each workload of Parquet PROFILES.

    A profile has a row for each container and window: the column `workload`, optionally `container`, `node_type`,
    `time` and the boolean `interference`; every other numeric column can be a feature.
    """
    columns = _read(profiles)
    features = wanted or tuple(name for name, column in columns.items() if _is_feature(name, column))
    for name in features:
        if name not in columns or columns[name].dtype.kind not in "fiub":
            raise click.UsageError(f"--feature {name}: the profiles have no such numeric column")
    if not features:
        raise click.UsageError("the profiles have no numeric column to learn from")
    try:
        models, skipped = fit_profile(_by_workload(columns, features), FitPolicy(min_samples=min_samples, seed=seed))
    except ImportError as error:
        click.echo(f"training needs scikit-learn ({error}): pip install 'koord[analysis]'", err=True)
        sys.exit(3)
    if not models:
        click.echo(f"no workload has {min_samples} ordinary samples; nothing written", err=True)
        sys.exit(1)
    _replace(output, encode_models(ModelFile(SCHEMA, features, time.time(), models)))
    for model in models:
        family = str(type(model.model).__struct_config__.tag)
        score = model.average_precision[family]
        click.echo(f"{model.key.workload}: {family}, {model.samples} samples, {model.chosen_by} AP {score:.3f}")
    for key in skipped:
        click.echo(f"{key.workload}: skipped, fewer than {min_samples} ordinary samples", err=True)


def _read(profiles: tuple[Path, ...]) -> dict[str, NDArray[Any]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        click.echo(f"reading profiles needs pyarrow ({error}): pip install 'koord[analysis]'", err=True)
        sys.exit(3)
    try:
        table = pa.concat_tables([pq.read_table(path) for path in profiles], promote_options="default")
    except pa.ArrowInvalid as error:
        raise click.UsageError(f"{', '.join(map(str, profiles))}: {error}") from error
    if "workload" not in table.column_names:
        raise click.UsageError("the profiles have no column `workload`")
    return {name: table.column(name).to_numpy() for name in table.column_names}


def _is_feature(name: str, column: NDArray[Any]) -> bool:
    return name not in _NEVER_FEATURES and column.dtype.kind in "fiu"


def _by_workload(
    columns: dict[str, NDArray[Any]], features: tuple[str, ...]
) -> dict[WorkloadKey, tuple[NDArray[np.float64], NDArray[np.bool_] | None]]:
    count = len(columns["workload"])
    matrix = np.stack([columns[name].astype(np.float64) for name in features], axis=1)
    harmed = columns[_LABEL].astype(np.bool_) if _LABEL in columns else None
    parts = [columns[name] if name in columns else np.full(count, "") for name in _KEYS]
    rows: dict[WorkloadKey, list[int]] = {}
    for row, (workload, container, node_type) in enumerate(zip(*parts, strict=True)):
        key = WorkloadKey(str(workload), str(container or ""), str(node_type or ""))
        rows.setdefault(key, []).append(row)
    return {key: (matrix[own], None if harmed is None else harmed[own]) for key, own in rows.items()}


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(data)
    fresh.replace(path)


if __name__ == "__main__":
    main()
