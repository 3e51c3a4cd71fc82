"""CPU time of one tick of the judge: made windows of a full node, all columns, baselines and models warm.

    python -m bench.judge [--containers 500] [--ticks 120]

Victims lose time to neighbours' CPU use, answer late and miss the cache; loads wander, pairs of the blame tables come
and go. The first tick in which all victims are hit is listed apart: it writes all their verdicts.
"""

import argparse
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from api.frame import CGROUP, CgroupInfo, Frame, Table
from api.metrics import BY_COLUMN, MetricKind
from detector.baselines.values import BaselinePolicy, WorkloadKey
from detector.cpi2.published import Cpi2Policy
from detector.judging.judge import Judge, JudgeSettings, judged_columns
from detector.models.features import FEATURES
from detector.models.format import SCHEMA, Forest, Mixture, ModelFile, Svm, Tree, WorkloadModel

WARM_TICKS = 90
PAIRS = {"cpu.blame": 4000, "memory.blame": 1000, "blockio.blame": 1000, "smt.blame": 1000}
FEATURE_NAMES = ("cpu_cores", "cpi", "llc_miss_ratio", "memory_bytes", "blockio_requests", "pressure_cpu", "requests")

Counts = NDArray[np.float64]


def frames(containers: int, victims: int, ticks: int, seed: int = 7) -> Iterator[Frame]:
    """Cumulative frames, one a second; the victims are hit after the warm-up."""
    rng = np.random.default_rng(seed)
    ids = np.sort(rng.choice(10**6, containers, replace=False)).astype(np.uint64)
    infos = tuple(
        CgroupInfo(int(one), f"/kubepods/pod{n}/c{n}", f"c{n}", "LS", f"ns/deployment/w{n // 5}", "main")
        for n, one in enumerate(ids)
    )
    sums = {name: rng.integers(10**9, 10**12, containers).astype(np.uint64) for name in judged_columns()}
    blames = {name: (rng.integers(0, containers, (count, 2)), np.zeros(count)) for name, count in PAIRS.items()}
    for tick in range(WARM_TICKS + ticks):
        hit = np.arange(containers) < (victims if tick >= WARM_TICKS else 0)
        for name, amount in growth(rng, hit).items():
            gauge = BY_COLUMN[name].kind is MetricKind.GAUGE
            sums[name] = amount.astype(np.uint64) if gauge else sums[name] + amount.astype(np.uint64)
        tables = {CGROUP: Table({"cgroup": ids}, dict(sums))}
        for name, (pairs, amounts) in blames.items():
            turned = rng.random(len(pairs)) < 0.02
            amounts[turned] = 0.0
            pairs[turned, 1] = rng.integers(0, containers, int(turned.sum()))
            amounts += np.where(hit[pairs[:, 0]], 4e8 * containers / len(pairs), 1e5) * rng.uniform(
                0.8, 1.2, len(pairs)
            )
            tables[name] = _table(name, ids, pairs, amounts)
        yield Frame(tick * 10**9, (1_700_000_000 + tick) * 10**9, infos, tables)


def growth(rng: np.random.Generator, hit: NDArray[np.bool_]) -> dict[str, Counts]:
    """Growth of each column in a tick."""
    near = rng.uniform(0.97, 1.03, len(hit))
    grown = {name: 1e4 * near if name.endswith("_ns") else 50 * near for name in judged_columns()}
    grown["net.tcp_retransmits"] = 0 * near
    grown["cpu.oncpu_ns"] = 6e8 * near
    grown["cpu.wait_neighbour_ns"] = np.where(hit, 4e8, 1e6) * near
    grown["pmu.instructions"], grown["pmu.cycles"] = 1e9 * near, np.where(hit, 2e9, 1e9) * near
    grown["pmu.llc_references"], grown["pmu.llc_misses"] = 1e6 * near, np.where(hit, 4e5, 1e5) * near
    grown["turnaround.requests"], grown["turnaround.sum_ns"] = 200 * near, np.where(hit, 1e9, 2e8) * near
    return grown


def _table(name: str, ids: NDArray[np.uint64], pairs: NDArray[np.int64], amounts: Counts) -> Table:
    codes, rows = np.unique(pairs[:, 0] * len(ids) + pairs[:, 1], return_inverse=True)
    summed = np.bincount(rows, weights=amounts).astype(np.uint64)
    return Table({"cgroup": ids[codes // len(ids)], "culprit": ids[codes % len(ids)]}, {f"{name}_ns": summed})


def models(workloads: int, seed: int = 3) -> ModelFile:
    """One model for each workload, of the three families in turn, as big as training makes them."""
    rng, width = np.random.default_rng(seed), len(FEATURE_NAMES)
    assert set(FEATURE_NAMES) <= set(FEATURES)
    made = []
    for number in range(workloads):
        parts = (_svm(rng, width), _forest(rng, width), _mixture(rng, width))
        made.append(
            WorkloadModel(
                key=WorkloadKey(f"ns/deployment/w{number}", "main", "cpu"),
                center=(0.0,) * width,
                scale=(1e9,) * width,
                threshold=-1e9,
                model=parts[number % 3],
                samples=2000,
                chosen_by="background",
                average_precision={},
            )
        )
    return ModelFile(SCHEMA, FEATURE_NAMES, 0.0, tuple(made))


def _svm(rng: np.random.Generator, width: int) -> Svm:
    return Svm(0.1, tuple(rng.random(40).tolist()), tuple(tuple(row) for row in rng.random((40, width)).tolist()))


def _mixture(rng: np.random.Generator, width: int) -> Mixture:
    one = tuple(tuple(row) for row in np.eye(width).tolist())
    return Mixture((0.25,) * 4, tuple(tuple(row) for row in rng.random((4, width)).tolist()), (one,) * 4)


def _forest(rng: np.random.Generator, width: int) -> Forest:
    depth, inner = 6, 63
    nodes = range(2 ** (depth + 1) - 1)
    tree = Tree(
        left=tuple(2 * node + 1 if node < inner else node for node in nodes),
        right=tuple(2 * node + 2 if node < inner else node for node in nodes),
        feature=tuple(rng.integers(0, width, len(nodes)).tolist()),
        threshold=tuple(rng.random(len(nodes)).tolist()),
        depth=tuple(0.0 if node < inner else 6.0 for node in nodes),
    )
    return Forest(200.0, (tree,) * 32)


def measure(containers: int, victims: int, ticks: int) -> tuple[list[float], int]:
    """Milliseconds of CPU of each tick from the first in which the victims are hit, and the number of verdict lines."""
    judge = Judge(
        JudgeSettings(
            node_type="cpu",
            baselines=BaselinePolicy(warm_samples=60.0, warm_periods=1),
            cpi2=Cpi2Policy(),
            models=models(containers // 5),
        )
    )
    took, lines = [], 0
    for number, frame in enumerate(frames(containers, victims, ticks)):
        began = time.thread_time()
        verdicts = judge.step(frame)
        if number >= WARM_TICKS:
            took.append((time.thread_time() - began) * 1e3)
            lines += len(verdicts)
    return took, lines


def main() -> None:
    """Print a row for each number of victims."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--containers", type=int, default=500)
    parser.add_argument("--ticks", type=int, default=120)
    options = parser.parse_args()
    columns, pairs = len(judged_columns()), sum(PAIRS.values())
    print(f"{options.containers} containers, {columns} columns, {pairs} pairs; ms of CPU a tick")
    print(f"{'victims':>8} {'first':>8} {'median':>8} {'p99':>8} {'lines':>8}")
    for victims in (0, options.containers // 10, options.containers):
        took, lines = measure(options.containers, victims, options.ticks)
        later = np.array(took[5:])
        figures = (max(took[:5]), float(np.median(later)), float(np.percentile(later, 99)))
        print(f"{victims:>8} {figures[0]:>8.2f} {figures[1]:>8.2f} {figures[2]:>8.2f} {lines:>8}")


if __name__ == "__main__":
    main()
