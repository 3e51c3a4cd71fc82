"""The metrics endpoint: whole sums, falling never, series bounded, clean by promtool."""

import itertools
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from api.frame import KERNEL_ID, OTHER_ID, CgroupInfo, CgroupKind, Frame
from api.histogram import SLOTS
from api.metrics import METRICS, Metric, MetricKind
from api.window import Window
from koordlet.config import MetricsSettings
from koordlet.metrics.cgroups import CgroupMetrics, InfoOf
from koordlet.tick import Tick
from tests.frames import cgroup_info, make_frame


def paths(count: int) -> dict[int, str]:
    return {number: f"/c{number}" for number in range(1, count + 1)}


def frame(second: int, count: int, growth: int, blame: dict[tuple[int, int], int] | None = None):  # type: ignore[no-untyped-def]
    hist = np.zeros((count, SLOTS), dtype=np.uint64)
    hist[:, 6] = second
    columns = {
        "cpu.oncpu_ns": [second * growth * number for number in range(1, count + 1)],
        "cpu.wait_neighbour_ns": [second * 10**6] * count,
        "cpu.wait_ns": [second * 10**6] * count,
        "cpu.wait_hist": hist,
        "memstat.usage_bytes": [4096.0] * count,
    }
    return make_frame(second, paths(count), columns, blame or {})


def infos(count: int) -> InfoOf:
    known = paths(count)
    return lambda identity: cgroup_info(identity, known[identity]) if identity in known else None


def make_tick(before: Frame, after: Frame) -> Tick:
    return Tick.of(Window((before, after)))


def text(exposition: CgroupMetrics) -> str:
    registry = CollectorRegistry()
    registry.register(exposition)
    return generate_latest(registry).decode()


def samples(output: str, series: str) -> dict[str, float]:
    found = re.findall(rf"^{series}(\{{.*\}})? (\S+)$", output, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def settings(**changes: int) -> MetricsSettings:
    return MetricsSettings(**changes)  # type: ignore[arg-type]


def test_the_rest_is_other_and_the_sum_is_whole() -> None:
    exposition = CgroupMetrics(settings(max_cgroups=3), infos(10), {"version": "0"})
    frames = [frame(second, 10, 10**6) for second in range(4)]
    for before, after in itertools.pairwise(frames):
        exposition.update(make_tick(before, after), capabilities={"cpu": True, "pmu": False})
    output = text(exposition)
    waits = samples(output, "koord_cgroup_cpu_wait_seconds_total")
    assert len(waits) == 4
    assert sum(waits.values()) == pytest.approx(3 * 10 * 1e-3)
    oncpu = samples(output, "koord_cgroup_cpu_oncpu_seconds_total")
    assert any('cgroup="/c10"' in labels for labels in oncpu)
    assert samples(output, "koord_capability") == {'{name="cpu"}': 1.0, '{name="pmu"}': 0.0}


def test_no_counter_falls_when_the_exported_set_changes() -> None:
    exposition = CgroupMetrics(settings(max_cgroups=1), infos(3), {})
    last = 0.0
    for second in range(1, 12):
        busy = 1 + second // 4
        columns = [{"cpu.oncpu_ns": [s * 10**9 if number <= busy else 0 for number in (1, 2, 3)]} for s in (0, 1)]
        exposition.update(
            make_tick(make_frame(second, paths(3), columns[0]), make_frame(second + 1, paths(3), columns[1])),
            capabilities={},
        )
        other = samples(text(exposition), "koord_cgroup_cpu_oncpu_seconds_total").get(
            '{cgroup="other",name="other",qos=""}', 0.0
        )
        assert other >= last
        last = other


def test_growth_of_ticks_that_were_missed_counts_once_though_cgroups_came_meanwhile() -> None:
    exposition = CgroupMetrics(settings(), infos(3), {})
    exposition.update(make_tick(frame(100, 2, 10**9), frame(101, 2, 10**9)), capabilities={})
    exposition.update(make_tick(frame(110, 3, 10**9), frame(111, 3, 10**9)), capabilities={})
    oncpu = samples(text(exposition), "koord_cgroup_cpu_oncpu_seconds_total")
    assert oncpu['{cgroup="/c2",name="c2",qos=""}'] == pytest.approx(2 * 11)


def test_what_a_cgroup_did_before_it_went_counts_in_its_series_and_in_the_sum_without_a_scrape() -> None:
    exposition = CgroupMetrics(settings(), infos(9), {})
    frames = [frame(second, 3, 10**9, {(3, 1): second * 10**9}) for second in range(3)] + [frame(3, 2, 10**9)]
    for earlier, later in itertools.pairwise(frames):
        exposition.update(make_tick(earlier, later), capabilities={})
    waits = samples(text(exposition), "koord_host_cpu_wait_duration_seconds_count")
    assert sum(waits.values()) == 3 + 3 + 2
    assert samples(text(exposition), "koord_host_cpu_wait_duration_seconds_count") == waits, "the host's go on"
    inflicted = samples(text(exposition), "koord_cgroup_inflicted_seconds_total")
    assert inflicted == {'{cgroup="/c1",name="c1",qos="",resource="cpu"}': pytest.approx(2.0)}
    assert '"/c3"' not in text(exposition), "what is gone has no series after the scrape that could see its end"


@pytest.mark.parametrize(
    "scraped",
    [
        pytest.param((), id="never scraped"),
        pytest.param((2,), id="scraped when it went"),
        pytest.param((3,), id="scraped after"),
        pytest.param((1, 2, 3), id="scraped always"),
    ],
)
@pytest.mark.parametrize("left", [pytest.param(1, id="others go"), pytest.param(2, id="others stay")])
def test_blame_on_what_went_while_probes_were_read_counts_once(scraped: tuple[int, ...], left: int) -> None:
    exposition = CgroupMetrics(settings(), infos(9), {})
    blamed = [{(3, 1): second * 10**9} for second in range(3)]
    frames = [frame(0, 3, 1, blamed[0]), frame(1, 3, 1, blamed[1]), frame(2, 2, 1, blamed[2])]
    frames += [frame(3, left, 1), frame(4, 1, 1)]
    if left == 2:
        frames[3] = replace(frames[3], cgroups=frames[2].cgroups)
    for number, (earlier, later) in enumerate(itertools.pairwise(frames), 1):
        exposition.update(make_tick(earlier, later), capabilities={})
        if number in scraped:
            text(exposition)
    inflicted = samples(text(exposition), "koord_cgroup_inflicted_seconds_total")
    assert inflicted == {'{cgroup="/c1",name="c1",qos="",resource="cpu"}': pytest.approx(2.0)}


def test_a_cgroup_that_comes_between_scrapes_counts_in_its_own_series_from_its_first_tick() -> None:
    exposition = CgroupMetrics(settings(), infos(9), {})
    frames = [frame(1, 2, 10**9), frame(2, 2, 10**9), frame(3, 3, 10**9), frame(4, 3, 10**9)]
    for earlier, later in itertools.pairwise(frames):
        exposition.update(make_tick(earlier, later), capabilities={})
    oncpu = samples(text(exposition), "koord_cgroup_cpu_oncpu_seconds_total")
    assert oncpu['{cgroup="/c3",name="c3",qos=""}'] == pytest.approx(4 * 3)


def test_without_scrapes_what_is_kept_of_cgroups_that_went_is_counted_in_turn() -> None:
    exposition = CgroupMetrics(settings(max_cgroups=2), infos(100), {})
    for second in range(2, 40):
        known = [{1: "/c1", at: f"/c{at}"} for at in (second, second + 1)]
        columns = [{"cpu.oncpu_ns": [at * 10**9, 10**9]} for at in (second, second + 1)]
        frames = [make_frame(second + at, known[at], columns[at]) for at in (0, 1)]
        exposition.update(make_tick(*frames), capabilities={})
    assert sum(map(len, exposition._parted.values())) <= 15
    oncpu = samples(text(exposition), "koord_cgroup_cpu_oncpu_seconds_total")
    assert oncpu['{cgroup="/c1",name="c1",qos=""}'] == pytest.approx(38)


def test_blame_is_top_k_plus_other() -> None:
    exposition = CgroupMetrics(settings(culprits_per_victim=2), infos(9), {})
    blame = {(1, culprit): culprit * 10**6 for culprit in range(2, 9)} | {(1, KERNEL_ID): 10**6}
    exposition.update(make_tick(frame(0, 9, 1), frame(1, 9, 1, blame)), capabilities={})
    pairs = samples(text(exposition), "koord_cgroup_cpu_blame_seconds_total")
    assert len(pairs) <= 4
    assert any('culprit_cgroup="other"' in labels for labels in pairs)
    assert sum(pairs.values()) == pytest.approx(sum(blame.values()) * 1e-9)


POD = "/kubepods/burstable/pod8c1e5e0a-1b2c-4d3e-9f00-aabbccddeeff"


def test_containers_of_pods_have_the_labels_of_the_kubelets_metrics() -> None:
    web = CgroupInfo(
        1, f"{POD}/a", "shop/web-0/app", "LS", kind=CgroupKind.CONTAINER, namespace="shop", pod="web-0", container="app"
    )
    known = {
        1: web,
        2: CgroupInfo(2, POD, "shop/web-0", "LS", kind=CgroupKind.POD, namespace="shop", pod="web-0"),
        3: replace(web, id=3, path=f"{POD}/b"),
        4: CgroupInfo(4, "/system.slice/x.service", "x.service"),
    }

    def at(second: int) -> Frame:
        made = make_frame(
            second,
            {identity: info.path for identity, info in known.items()},
            {"cpu.oncpu_ns": [second * 10**9] * 4},
            {(1, 4): second * 10**9, (2, 1): second * 10**9},
        )
        return replace(made, cgroups=tuple(known.values()))

    exposition = CgroupMetrics(settings(), known.get, {})
    exposition.update(make_tick(at(0), at(1)), capabilities={})
    assert samples(text(exposition), "koord_cgroup_cpu_oncpu_seconds_total") == {
        '{container="app",name="shop/web-0/app",namespace="shop",pod="web-0",qos="LS"}': 1.0,
        f'{{cgroup="{POD}",name="shop/web-0",namespace="shop",pod="web-0",qos="LS"}}': 1.0,
        f'{{cgroup="{POD}/b",container="app",name="shop/web-0/app",namespace="shop",pod="web-0",qos="LS"}}': 1.0,
        '{cgroup="/system.slice/x.service",name="x.service",qos=""}': 1.0,
    }
    assert samples(text(exposition), "koord_cgroup_cpu_blame_seconds_total") == {
        '{container="app",culprit_cgroup="/system.slice/x.service",namespace="shop",pod="web-0"}': 1.0,
        f'{{culprit_container="app",culprit_namespace="shop",culprit_pod="web-0",namespace="shop",pod="web-0",'
        f'victim_cgroup="{POD}"}}': 1.0,
    }


def test_a_cgroup_that_gets_its_pods_name_later_starts_a_new_series() -> None:
    unknown = CgroupInfo(1, f"{POD}/a", "a")
    known = replace(
        unknown, name="shop/web-0/app", kind=CgroupKind.CONTAINER, namespace="shop", pod="web-0", container="app"
    )
    columns = [{"cpu.oncpu_ns": [second * 10**9]} for second in range(3)]
    first, second, third = (make_frame(at, {1: unknown.path}, columns[at]) for at in range(3))
    exposition = CgroupMetrics(settings(), {1: known}.get, {})
    exposition.update(make_tick(first, replace(second, cgroups=(unknown,))), capabilities={})
    exposition.update(make_tick(second, replace(third, cgroups=(known,))), capabilities={})
    assert samples(text(exposition), "koord_cgroup_cpu_oncpu_seconds_total") == {
        '{container="app",name="shop/web-0/app",namespace="shop",pod="web-0",qos=""}': 1.0
    }


def test_a_container_that_is_started_again_goes_on_in_the_series_of_its_predecessor() -> None:
    old = CgroupInfo(
        1, f"{POD}/a", "shop/web-0/app", kind=CgroupKind.CONTAINER, namespace="shop", pod="web-0", container="app"
    )
    new = replace(old, id=2, path=f"{POD}/b")
    frames = [
        replace(
            make_frame(
                at, {info.id: info.path}, {"cpu.oncpu_ns": [at * 10**9], "cpu.wait_hist": np.full((1, SLOTS), waits)}
            ),
            cgroups=(info,),
        )
        for at, info, waits in ((0, old, 0), (1, old, 1), (2, old, 2), (2, new, 1), (3, new, 2))
    ]
    exposition = CgroupMetrics(settings(), {1: old, 2: new}.get, {})
    for earlier, later in itertools.pairwise(frames):
        exposition.update(make_tick(earlier, later), capabilities={})
    assert samples(text(exposition), "koord_cgroup_cpu_oncpu_seconds_total") == {
        '{container="app",name="shop/web-0/app",namespace="shop",pod="web-0",qos=""}': 3.0
    }
    assert samples(text(exposition), "koord_host_cpu_wait_duration_seconds_count") == {"": (2 + 2) * SLOTS}


def test_a_container_that_is_started_again_and_described_late_gets_its_predecessors_series() -> None:
    old = CgroupInfo(
        1, f"{POD}/a", "shop/web-0/app", kind=CgroupKind.CONTAINER, namespace="shop", pod="web-0", container="app"
    )
    late = CgroupInfo(2, f"{POD}/b", "shop/web-0:/b", namespace="shop", pod="web-0")
    known = replace(old, id=2, path=f"{POD}/b")
    frames = [
        replace(make_frame(at, {info.id: info.path}, {"cpu.oncpu_ns": [at * 10**9]}), cgroups=(info,))
        for at, info in ((0, old), (1, old), (2, late), (3, late), (4, known), (5, known))
    ]
    exposition = CgroupMetrics(settings(), {1: old, 2: known}.get, {})
    for earlier, later in itertools.pairwise(frames):
        exposition.update(make_tick(earlier, later), capabilities={})
    assert list(samples(text(exposition), "koord_cgroup_cpu_oncpu_seconds_total")) == [
        '{container="app",name="shop/web-0/app",namespace="shop",pod="web-0",qos=""}'
    ]


def test_histograms_are_cumulative_with_upper_edges_in_seconds() -> None:
    exposition = CgroupMetrics(settings(histogram_cgroups=1), infos(2), {})
    exposition.update(make_tick(frame(0, 2, 1), frame(5, 2, 1)), capabilities={})
    output = text(exposition)
    buckets = samples(output, "koord_cgroup_cpu_wait_duration_seconds_bucket")
    edges = [(float(re.search(r'le="([^"]+)"', labels).group(1)), count) for labels, count in buckets.items()]  # type: ignore[union-attr]
    assert [count for _, count in sorted(edges)] == sorted(count for _, count in edges)
    assert max(edges) == (float("inf"), 5.0)
    assert samples(output, "koord_host_cpu_wait_duration_seconds_count") == {"": 10.0}
    # slot 6 counts below 2**16 ns
    assert min(edge for edge, count in edges if count) == pytest.approx(2**16 * 1e-9)


@pytest.mark.parametrize(
    "metric", [pytest.param(metric, id=metric.column) for metric in METRICS if metric.kind is MetricKind.HISTOGRAM]
)
def test_the_sum_of_a_histogram_grows_with_it(metric: Metric) -> None:
    def at(second: int) -> Frame:
        slots = np.zeros((1, SLOTS), dtype=np.uint64)
        slots[:, 6] = second
        return make_frame(second, paths(1), {metric.column: slots, metric.sum_column: [second * 5 * 10**8]})

    exposition = CgroupMetrics(settings(), infos(1), {})
    sums = []
    for second in range(3):
        exposition.update(make_tick(at(second), at(second + 1)), capabilities={})
        output = text(exposition)
        sums.append([*samples(output, f"{metric.series}_sum").values()])
        (host,) = samples(output, f"{metric.series.replace('_cgroup_', '_host_')}_sum").values()
        assert host == pytest.approx(sums[-1][0])
    assert sums == [[0.5], [1.0], [1.5]]
    (count,) = samples(output, f"{metric.series}_count").values()
    assert count == 3.0


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool (Debian's prometheus) is not installed")
def test_promtool_finds_nothing_to_complain_about() -> None:
    exposition = CgroupMetrics(settings(), infos(4), {"version": "0"})
    exposition.update(
        make_tick(frame(0, 4, 10**6), frame(1, 4, 10**6, {(1, 2): 5})),
        capabilities={"cpu": True},
        programs=[("cpu", "on_switch", 1.5, 100)],
    )
    done = subprocess.run(["promtool", "check", "metrics"], input=text(exposition), capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_names_follow_the_conventions() -> None:
    for metric in METRICS:
        if metric.family:
            assert re.fullmatch(r"koord_(cgroup|host|agent|resctrl|triage)_[a-z_]+", metric.series), metric.series
            assert metric.series.endswith("_total") == (metric.kind is MetricKind.COUNTER)
            assert not re.search(r"_(ns|us|ms)(_|$)", metric.series)


def test_blame_between_scrapes_is_whole_though_cgroups_end() -> None:
    exposition = CgroupMetrics(settings(), infos(9), {})
    grown = {(1, 2): 10**9, (3, 2): 10**9}
    frames = [frame(0, 3, 1)]
    for second in range(1, 4):
        blame = {pair: amount * second for pair, amount in grown.items()}
        frames.append(frame(second, 3, 1, blame))
    frames.append(frame(4, 2, 1, {(1, 2): 4 * 10**9}))
    for earlier, later in itertools.pairwise(frames):
        exposition.update(make_tick(earlier, later), capabilities={})
    pairs = samples(text(exposition), "koord_cgroup_cpu_blame_seconds_total")
    assert sum(pairs.values()) == pytest.approx(4.0)


def test_history_of_pairs_that_were_folded_is_no_growth_of_other() -> None:
    exposition = CgroupMetrics(settings(), infos(9), {})
    blamed = [
        {(1, 2): 100 * 10**9, (1, 3): 50 * 10**9},
        {(1, 2): 101 * 10**9, (1, OTHER_ID): 51 * 10**9},
        {(1, 2): 10**9, (1, OTHER_ID): 152 * 10**9},
    ]
    frames = [frame(second, 3, 1, blame) for second, blame in enumerate(blamed)]
    for earlier, later in itertools.pairwise(frames):
        exposition.update(make_tick(earlier, later), capabilities={})
        output = text(exposition)
    pairs = samples(output, "koord_cgroup_cpu_blame_seconds_total")
    by_culprit = {re.findall(r'culprit_cgroup="([^"]*)"', labels)[0]: value for labels, value in pairs.items()}
    assert by_culprit == pytest.approx({"/c2": 2.0, "other": 1.0})
    inflicted = samples(output, "koord_cgroup_inflicted_seconds_total")
    assert sum(inflicted.values()) == pytest.approx(3.0)
