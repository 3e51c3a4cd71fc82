"""Use as it is published: percentiles of the live histograms, bounded in size; what makes no sense is not read."""

import msgspec
import numpy as np
import pytest

from api.crds.analysis import MAX_USAGE_BUCKETS, MAX_USAGE_CONTAINERS, ContainerUsage, UsageHistogram
from controllers.kinds import NODE_METRIC
from controllers.recommend.distribution import better, differs, quantile, sound, told, usage_of
from controllers.recommend.observed import WorkloadUsage
from controllers.recommend.outlook import ObservedUsage
from controllers.recommend.usage import CPU_BUCKETS, MEMORY_BUCKETS
from tests.controllers.recommend import cluster
from tests.controllers.recommend.cluster import BEGIN, WEB, container, live, placed, pod

USED = UsageHistogram(first=10, shares=[500, 0, 400, 100])


def learned(days: int = 2, containers: int = 1) -> ObservedUsage:
    table = WorkloadUsage()
    found = table.value()
    placed(table, pod("web-1", *(container(f"app-{number:02}", "1", "1Gi") for number in range(containers))))
    live(table, days, every=60.0)
    return found


def usage(container: str = "app", days: float = 2.0, cpu: UsageHistogram = USED) -> ContainerUsage:
    return ContainerUsage(container=container, days=days, cpu=cpu, memory=USED)


def test_the_buckets_are_those_of_the_schema() -> None:
    assert CPU_BUCKETS.count == MEMORY_BUCKETS.count == MAX_USAGE_BUCKETS


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.95, 0.99], ids=str)
def test_percentiles_are_those_of_the_recommender_within_a_thousandth(share: float) -> None:
    found = ObservedUsage()
    found.usage.open(np.array([0]))
    found.rows[WEB], found.aggregates[0] = 0, {"app": 0}
    draw = np.random.default_rng(1)
    at = BEGIN + 60.0 * np.arange(2000)
    streams = np.zeros(2000, np.intp)
    found.usage.add_cpu(streams, at, draw.lognormal(0.0, 1.0, 2000))
    found.usage.add_memory(streams, at, draw.lognormal(20.0, 0.5, 2000))
    (each,) = usage_of(found, [WEB])[WEB]
    for histogram, source in ((each.cpu, found.usage.cpu), (each.memory, found.usage.memory)):
        assert sum(histogram.shares) == 1000
        least, most = (float(source.percentile(np.array([0]), share + by)[0]) for by in (-0.001, 0.001))
        assert least <= quantile(histogram, source.buckets, share) <= most


def test_a_workload_is_stated_once_it_is_known_for_half_an_hour() -> None:
    table = WorkloadUsage()
    found = table.value()
    placed(table, pod("web-1", container("app", "1", "1Gi")))
    for minute in range(40):
        assert not usage_of(found, [WEB]) or minute >= 28
        table.apply(NODE_METRIC, cluster.told(BEGIN + 60 * minute, {"web-1": ("1", "1G")}))
    (each,) = usage_of(found, [WEB, "Deployment/d/unknown"])[WEB]
    assert (each.container, each.days) == ("app", pytest.approx(39 / 1440, abs=1e-3))
    assert len(each.cpu.shares) == len(each.memory.shares) == 1


def test_a_profile_holds_a_bounded_number_of_containers() -> None:
    usages = usage_of(learned(1, containers=20), [WEB])[WEB]
    assert len(usages) == MAX_USAGE_CONTAINERS
    assert [each.container for each in usages] == sorted(each.container for each in usages)
    assert len(msgspec.json.encode(usages)) < 2048


@pytest.mark.parametrize(
    "histogram",
    [
        pytest.param(UsageHistogram(first=-1, shares=[1]), id="bucket-below-the-first"),
        pytest.param(UsageHistogram(first=175, shares=[1, 1]), id="bucket-beyond-the-last"),
        pytest.param(UsageHistogram(first=1, shares=[-1, 5]), id="negative-share"),
        pytest.param(UsageHistogram(first=1, shares=[1 << 60]), id="huge-share"),
        pytest.param(UsageHistogram(first=1, shares=[0, 0]), id="no-weight"),
    ],
)
def test_what_makes_no_sense_is_not_read(histogram: UsageHistogram) -> None:
    assert sound([usage(cpu=histogram), usage("other")]) == [usage("other")]
    assert better([usage(cpu=histogram)], [usage(days=0.1)]) == [usage(days=0.1)]


def test_what_was_published_stays_until_as_much_stands_behind_what_is_found() -> None:
    published = [usage(days=9.0)]
    assert better(published, []) == published
    assert better(published, [usage(days=0.9)]) == published
    assert better(published, [usage(days=1.0)]) == [usage(days=1.0)]
    assert better([usage(days=0.1)], [usage(days=0.2)]) == [usage(days=0.2)]


def test_a_percentile_that_moved_a_container_or_twice_the_history_is_a_difference() -> None:
    before = [usage()]
    slightly = UsageHistogram(first=10, shares=[500, 0, 410, 90])
    assert not differs(before, [usage(days=3.9, cpu=slightly)])
    assert differs(before, [usage(cpu=UsageHistogram(first=14, shares=USED.shares))])
    assert differs(before, [usage(cpu=UsageHistogram())])
    assert differs(before, [usage(days=4.1)])
    assert differs(before, [usage(), usage("other")])
    assert not differs([usage(cpu=UsageHistogram())], [usage(cpu=UsageHistogram())])


def test_a_line_says_what_a_container_uses() -> None:
    (each,) = usage_of(learned(), [WEB])[WEB]
    assert (
        told(each)
        == "use of app-00: CPU p50 1.02, p95 8.36 cores; memory p50 969.2, p95 969.2 MiB; from 2 days of samples"
    )
    assert "not measured" in told(ContainerUsage(container="app"))
