"""Traits of a planted cluster: ranks, errors that cover, causal care, and sums that do not depend on how they came."""

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from controllers.profiles.merge import T_90, Evidence, Sums, Traits, traits
from tests.controllers.profiles.planted import BINS, Planted, planted

WORKLOADS = 40


@pytest.fixture(scope="module")
def cluster() -> Planted:
    return planted(1, nodes=120, hours=24)


def of(cluster: Planted) -> Traits:
    return traits(cluster.sums, WORKLOADS, BINS)


def test_ranks_are_those_of_the_truth_though_a_fifth_is_confounded_by_load(cluster: Planted) -> None:
    found = of(cluster)
    assert spearmanr(cluster.sensitivity, found.sensitivity.value)[0] >= 0.95
    assert spearmanr(cluster.strength, found.strength.value)[0] >= 0.95
    assert np.flatnonzero(found.sensitivity.correlated).tolist() == list(range(0, WORKLOADS, 5))


def test_errors_cover_the_truth_about_as_often_as_they_claim(cluster: Planted) -> None:
    found, scale = of(cluster), cluster.strength.mean()
    for truth, estimate in (
        (cluster.sensitivity * scale, found.sensitivity),
        (cluster.strength / scale, found.strength),
    ):
        assert np.mean(np.abs(estimate.value - truth) <= T_90 * estimate.error) >= 0.75


def test_without_care_the_loads_own_doing_would_count(cluster: Planted) -> None:
    sums = cluster.sums
    believed = replace(sums, evidence=np.where(sums.evidence == Evidence.CORRELATED, Evidence.DIRECT, sums.evidence))
    careful, credulous = of(cluster).sensitivity.value, traits(believed, WORKLOADS, BINS).sensitivity.value
    confounded = np.arange(0, WORKLOADS, 5)
    truth = cluster.sensitivity[confounded] * cluster.strength.mean()
    assert np.abs(careful[confounded] / truth - 1).max() < 0.5
    assert np.median(careful[confounded] / truth) == pytest.approx(1.0, abs=0.15)
    assert np.median(credulous[confounded] / truth) > 1.25


def test_reports_in_any_order_and_in_parts_give_the_same(cluster: Planted) -> None:
    order = np.random.default_rng(1).permutation(len(cluster.sums.victims))
    half = {"seconds", "pressure", "pressure_squares", "lost", "lost_pressure"}
    half |= {"load", "load_squares", "load_pressure", "load_lost"}
    columns = {}
    for each in fields(Sums):
        column = getattr(cluster.sums, each.name)[order]
        columns[each.name] = np.concatenate([column / 2, column / 2] if each.name in half else [column, column])
    again = traits(Sums(**columns), WORKLOADS, BINS)
    assert again.sensitivity.value == pytest.approx(of(cluster).sensitivity.value)
    assert again.strength.error == pytest.approx(of(cluster).strength.error, rel=1e-6)


def test_a_workload_of_which_nothing_is_told_has_no_figure(cluster: Planted) -> None:
    found = traits(cluster.sums, WORKLOADS + 1, BINS)
    assert np.isnan(found.sensitivity.value[WORKLOADS])
    assert np.isnan(found.strength.value[WORKLOADS])
