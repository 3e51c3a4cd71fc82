from typing import Any

import pytest

from api.settings import SettingsError
from koordlet.strategies.plugins.memory_evict import MemoryEvict, MemoryEvictSettings, usage_release_bytes
from koordlet.strategies.settings import settings_of
from koordlet.strategies.view import NodeView
from tests.koordlet.strategies.views import GIB, evicted, node, pod, view

DEFAULTS = {
    "gates": {"BEMemoryEvict": False, "MemoryAllocatableEvict": False, "MemoryEvict": False},
    "settings": {
        "enable": False,
        "evictEnabledPriorityThreshold": None,
        "allocatableEvictPriorityThreshold": None,
        "memoryEvictThresholdPercent": 70,
        "memoryEvictLowerPercent": None,
        "memoryAllocatableEvictThresholdPercent": None,
        "memoryAllocatableEvictLowerPercent": None,
    },
}

OPT_IN = {"koordinator.sh/eviction-enabled": "true"}
BATCH = "kubernetes.io/batch-memory"
ON = MemoryEvictSettings(enable=True)


@pytest.mark.parametrize(
    ("used", "config", "release"),
    [
        pytest.param(80 * GIB, ON, 12 * GIB, id="down-to-two-below"),
        pytest.param(80 * GIB, MemoryEvictSettings(enable=True, lower_percent=50), 30 * GIB, id="down-to-lower"),
        pytest.param(70 * GIB, ON, 2 * GIB, id="at-the-threshold"),
        pytest.param(70 * GIB - 1, ON, 0, id="whole-percents"),
        pytest.param(None, ON, 0, id="unknown"),
    ],
)
def test_release(used: int | None, config: MemoryEvictSettings, release: int) -> None:
    assert usage_release_bytes(view(memory_bytes=used), config) == release


def full(**more: Any) -> NodeView:
    """A node at 80 percent of 100 GiB."""
    pods = [
        pod("low", "BE", priority=5000, memory_bytes=5 * GIB, requests={BATCH: 5 * GIB}),
        pod("big", "BE", priority=5500, memory_bytes=8 * GIB, requests={BATCH: 8 * GIB}),
        pod("small", "BE", priority=5500, memory_bytes=1 * GIB, requests={BATCH: 1 * GIB}),
        pod("in", "LS", priority=6000, memory_bytes=6 * GIB, labels=OPT_IN),
        pod("lsr", "LSR", priority=100, memory_bytes=6 * GIB, labels=OPT_IN),
    ]
    return view(*pods, **{"memory_bytes": 80 * GIB, **more})


def run(config: MemoryEvictSettings, seen: NodeView, *gates: str) -> list[tuple[int, list[str]]]:
    strategy = MemoryEvict(config, dict.fromkeys(gates, True))
    found = [(second, evicted(strategy.decide(seen, float(second)))) for second in range(8)]
    return [(second, [path.rpartition("/pod")[2] for path in paths]) for second, paths in found if paths]


def test_best_effort_goes_by_priority_then_size() -> None:
    assert run(ON, full(), "BEMemoryEvict") == [(4, ["low", "big"])]


def test_those_that_opted_in_go_by_their_own_memory() -> None:
    config = MemoryEvictSettings(enable=True, evict_enabled_priority_threshold=6000)
    assert run(config, full(), "MemoryEvict") == [(4, ["in"])], "6 of 12 GiB; LSR is never evicted"


def test_without_a_priority_nobody_is_evicted_by_usage() -> None:
    assert run(ON, full(), "MemoryEvict") == []


def test_features_share_what_they_release() -> None:
    config = MemoryEvictSettings(enable=True, evict_enabled_priority_threshold=6000)
    assert run(config, full(), "BEMemoryEvict", "MemoryEvict") == [(4, ["low", "big"])], "13 of 12 GiB are released"


def test_the_ledger() -> None:
    config = MemoryEvictSettings(
        enable=True,
        allocatable_threshold_percent=110,
        allocatable_lower_percent=90,
        allocatable_evict_priority_threshold=5999,
    )
    pods = [pod(name, "BE", labels=OPT_IN, requests={BATCH: size * GIB}) for name, size in {"a": 4, "b": 8}.items()]
    seen = view(*pods, on=node(allocatable={BATCH: 10 * GIB}))
    assert run(config, seen, "MemoryAllocatableEvict") == [(4, ["b"])]


def test_off_by_default() -> None:
    assert run(ON, full()) == []
    assert run(MemoryEvictSettings(), full(), "BEMemoryEvict") == []


@pytest.mark.parametrize(
    ("table", "words"),
    [
        pytest.param({"memoryEvictLowerPercent": 70}, "memoryEvictLowerPercent 70 must be below", id="lower"),
        pytest.param({"memoryEvictThresholdPercent": 0.7}, "whole number", id="fraction"),
        pytest.param({"memoryEvictThresholdPercent": 0}, "memoryEvictThresholdPercent", id="always"),
    ],
)
def test_refused_settings(table: dict[str, float], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        settings_of(MemoryEvictSettings, MemoryEvict.section, {MemoryEvict.section: table}, "file")
