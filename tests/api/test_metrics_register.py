"""Columns that plugins declare: in the table for everybody, refused where they clash."""

import pytest

from api.metrics import BY_COLUMN, METRICS, Metric, MetricKind, Unit, register
from api.plugin import PluginError

HUGE = Metric("hugepages.used_bytes", "cgroup_hugepages_used", MetricKind.GAUGE, Unit.BYTES, "Huge pages in use")


def test_a_registered_column_is_in_the_table_and_may_be_registered_again() -> None:
    for _ in range(2):
        register([HUGE], "collector hugepages")
    assert BY_COLUMN["hugepages.used_bytes"] is HUGE
    assert HUGE not in METRICS


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        pytest.param(METRICS[0], f"probe other: column '{METRICS[0].column}' .* by api/metrics.py", id="built-in"),
        pytest.param(HUGE, "probe other: column 'hugepages.used_bytes' .* by collector hugepages", id="other-plugin"),
        pytest.param(
            Metric("other.used", "cgroup_hugepages_used", MetricKind.GAUGE, Unit.BYTES, "", {"node": "0"}),
            "probe other: series koord_cgroup_hugepages_used_bytes .* collector hugepages",
            id="series-with-other-labels",
        ),
    ],
)
def test_a_clash_names_both_plugins(metric: Metric, message: str) -> None:
    register([HUGE], "collector hugepages")
    with pytest.raises(PluginError, match=message):
        register([metric], "probe other")
    assert "other.used" not in BY_COLUMN
