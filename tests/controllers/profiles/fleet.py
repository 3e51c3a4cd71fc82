"""A simulated fleet whose nodes report usage, verdicts and usual values, with planted figures."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from api.crds import NodeMetric
from api.kube.interference import POINTS
from api.kube.times import rfc3339
from cluster import DeltaType, Key, StoreDelta
from controllers.kinds import NODE, NODE_METRIC
from controllers.profiles.observations import Observations
from detector.baselines.sketch import bucket_of
from tests.capacity import NOW, a_node, a_report, a_usage

CORES = 32
PERIOD = 60.0


def name_of(number: int) -> str:
    return f"Deployment/d/w{number}"


def added(found: Observations, nodes: int) -> None:
    deltas = [
        StoreDelta(DeltaType.ADDED, Key("", f"n{node}"), None, a_node(f"n{node}", CORES)) for node in range(nodes)
    ]
    found.apply(NODE, deltas)


def report(found: Observations, node: int, metric: Any) -> None:
    found.apply(NODE_METRIC, [StoreDelta(DeltaType.UPDATED, Key("", f"n{node}"), None, metric)])


def at(turn: float) -> str:
    return rfc3339(NOW + turn * PERIOD)


def pods_of(
    cores: Mapping[int, float],
    verdicts: Mapping[int, list[dict[str, Any]]],
    waited: Mapping[int, object] | None = None,
) -> list[dict[str, Any]]:
    return [
        a_usage(
            f"w{number}-x",
            f"{used * 1000:.0f}m",
            0,
            extensions={
                "workload": name_of(number),
                "interference": {"verdicts": verdicts.get(number, [])},
                **({"waited": waited[number]} if waited and number in waited else {}),
            },
        )
        for number, used in cores.items()
    ]


def usual(number: int, seconds: float, draw: np.random.Generator, *, signal: str = "turnaround") -> dict[str, Any]:
    values = np.sort(seconds * draw.lognormal(0.0, 0.3, 400))
    points = bucket_of(values[((np.arange(POINTS) + 0.5) / POINTS * 400).astype(int)]).tolist()
    return {
        "workload": name_of(number),
        "signal": signal,
        "loadKind": 1,
        "octave": 3,
        "weight": 300.0,
        "points": points,
    }


def reports(node: int, turns: int, draw: np.random.Generator, slow: float = 1.0, workloads: int = 12) -> Iterator[Any]:
    """Reports of a node on which everything takes `slow` times what it takes elsewhere; half of all run there."""
    here = draw.choice(workloads, workloads * 2 // 3, replace=False)
    for turn in range(turns):
        stated = [usual(number, 0.01 * (1 + number) * slow, draw) for number in draw.choice(here, 4, replace=False)]
        yield a_report(f"n{node}", updated=at(turn), extensions={"usualValues": stated})


def converted(document: Mapping[str, Any]) -> NodeMetric:
    return msgspec.convert(document, NodeMetric)
