"""The nightly job: delivered where a trial is good, kept, withdrawn where it is not; also through the command."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from api.crds import WORKLOAD_PROFILE, DeliveredModels
from api.kube.workload import workload_named
from cluster import Key, custom
from cluster.twin import Twin
from controllers.__main__ import main
from controllers.models.training import LEARNED, Decision, Outcome, decide
from detector.models.delivery import unpack
from detector.models.fit import FitPolicy
from detector.models.trial import LOSS

PROFILES = custom(WORKLOAD_PROFILE)
WEB, FLAT, FEW = "Deployment/shop/web", "Deployment/shop/flat", "Deployment/shop/few"
POLICY = FitPolicy(min_samples=200)
NOW = 1_700_000_000.0


def columns(seed: int = 1, *, changed: bool = False, count: int = 700) -> dict[str, Any]:
    """Rows of three workloads: one whose loss follows its load (unless `changed`), one with none, one with few."""
    draw = np.random.default_rng(seed)
    seconds = 10.0 * np.concatenate([np.arange(count), np.arange(count), np.arange(50)])
    load = 0.6 + 0.4 * np.sin(2 * np.pi * seconds / 400) * draw.uniform(0.9, 1.0, len(seconds))
    follows = np.arange(len(load)) < count
    usual = np.where(follows, 0.045 * load**2, 0.001)
    if changed:
        usual = np.where(follows, draw.permutation(usual), usual)
    names = np.array([WEB] * count + [FLAT] * count + [FEW] * 50)
    order = draw.permutation(len(names))
    made = {
        "workload": names,
        "container": np.full(len(names), "main"),
        "node_type": np.full(len(names), "cpu"),
        "time": seconds,
        "cpu_cores": load,
        LOSS: usual * draw.lognormal(0, 0.05, len(load)),
        "cpi": np.full(len(load), np.nan),
        "interference": np.zeros(len(load), bool),
        "memory_bytes": draw.uniform(1e9, 2e9, len(load)),
    }
    return {name: column[order] for name, column in made.items()}


def by_name(decisions: list[Decision]) -> dict[str, Decision]:
    return {each.workload: each for each in decisions}


def delivered() -> DeliveredModels:
    models = by_name(decide(columns(), {}, POLICY, NOW))[WEB].models
    assert models is not None
    return models


def test_models_are_delivered_where_they_find_more_than_a_threshold() -> None:
    found = by_name(decide(columns(), {}, POLICY, NOW))
    assert {name: each.outcome for name, each in found.items()} == {
        WEB: Outcome.DELIVER,
        FLAT: Outcome.NONE,
        FEW: Outcome.NONE,
    }
    models = found[WEB].models
    assert models is not None
    assert models.recall - models.plain_recall >= 0.05
    assert models.rows >= 100
    assert models.trained_time == "2023-11-14T22:13:20Z"
    file = unpack(models.data, models.sha256, WEB)
    assert file.features == ("cpu_cores", LOSS), "what was not measured is not learned, nor what drifts"
    assert set(file.features) <= set(LEARNED)
    assert "too few" in found[FEW].reason
    assert "not good enough" in found[FLAT].reason


def test_they_stay_while_they_hold_and_are_withdrawn_when_they_do_not() -> None:
    present = delivered()
    again = by_name(decide(columns(7), {WEB: present}, POLICY, NOW))[WEB]
    assert again.outcome in (Outcome.KEEP, Outcome.DELIVER)
    changed = by_name(decide(columns(7, changed=True), {WEB: present}, POLICY, NOW))[WEB]
    assert changed.outcome is Outcome.WITHDRAW
    assert "finds" in changed.reason
    gone = by_name(decide(columns(), {"Deployment/shop/gone": present}, POLICY, NOW))["Deployment/shop/gone"]
    assert gone.outcome is Outcome.WITHDRAW
    damaged = DeliveredModels(data="%", sha256="")
    assert by_name(decide(columns(7, changed=True), {WEB: damaged}, POLICY, NOW))[WEB].outcome is Outcome.WITHDRAW
    assert "cannot be read" in by_name(decide(columns(7, changed=True), {WEB: damaged}, POLICY, NOW))[WEB].reason


def test_profiles_without_rows_or_without_the_loss_decide_nothing() -> None:
    empty = {name: column[:0] for name, column in columns().items()}
    assert decide(empty, {}, POLICY, NOW) == []
    assert decide({name: column for name, column in columns().items() if name != LOSS}, {}, POLICY, NOW) == []


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as made:
        made.serve(PROFILES)
        yield made


def stored(path: Path, made: dict[str, Any]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(made), path)
    return path


def models_in(twin: Twin, workload: str) -> DeliveredModels | None:
    named = workload_named(workload)
    assert named is not None
    with twin.client() as client:
        profile = client.find(PROFILES, Key(named.namespace, named.profile_name))
    return profile.status.models if profile is not None else None


def test_the_command_tells_delivers_and_withdraws(twin: Twin, tmp_path: Path) -> None:
    night = stored(tmp_path / "night.parquet", columns())
    server = ["--server", twin.url, "train-models", "--min-samples", "200", "--from"]
    told = CliRunner().invoke(main, [*server, str(night)])
    assert told.exit_code == 0, told.output
    assert f"deliver  {WEB}: finds" in told.output
    assert models_in(twin, WEB) is None, "only told"
    done = CliRunner().invoke(main, [*server, str(night), "--deliver"])
    assert done.exit_code == 0, done.output
    models = models_in(twin, WEB)
    assert models is not None and unpack(models.data, models.sha256, WEB).models
    assert models_in(twin, FLAT) is None
    later = stored(tmp_path / "later.parquet", columns(7, changed=True))
    done = CliRunner().invoke(main, [*server, str(later), "--deliver"])
    assert f"withdraw {WEB}" in done.output
    assert models_in(twin, WEB) is None


def test_a_dead_server_and_what_is_no_profile_end_with_a_remedy(twin: Twin, tmp_path: Path) -> None:
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    torn = CliRunner().invoke(main, ["train-models", "--from", str(tmp_path / "torn.parquet")])
    assert torn.exit_code != 0
    assert "torn.parquet" in torn.output and "Traceback" not in torn.output
    night = stored(tmp_path / "night.parquet", columns())
    url = twin.url
    twin.stop()
    dead = CliRunner().invoke(main, ["--server", url, "train-models", "--from", str(night), "--deliver"])
    assert dead.exit_code != 0
    assert "API server" in dead.output
