"""Health: a hung loop and a dead watch are seen, an API server that is away is not the process's fault."""

import pytest
from prometheus_client import CollectorRegistry

from cluster.serving import Request
from controllers.runtime.health import Health, fault_of


@pytest.mark.parametrize(
    ("idle", "silent", "synced", "expected"),
    [
        pytest.param(1.0, {"nodes": 1.0, "pods": 60.0}, True, "", id="sound"),
        pytest.param(61.0, {"nodes": 1.0}, True, "the loop has not begun a round for 61 s", id="hung"),
        pytest.param(1.0, {"nodes": 1.0, "pods": 301.0}, True, "nothing was heard of pods for 300 s", id="dead-watch"),
        pytest.param(1.0, {"nodes": 900.0, "pods": 901.0}, True, "", id="server-away"),
        pytest.param(1.0, {"nodes": 1.0, "pods": 1e6}, False, "", id="first-lists"),
        pytest.param(1.0, {}, True, "", id="no-watch"),
    ],
)
def test_faults(idle: float, silent: dict[str, float], synced: bool, expected: str) -> None:
    assert fault_of(idle, silent, synced=synced) == expected


def test_probes_follow_fault_and_readiness() -> None:
    faults = ["", "a watch is dead"]
    health = Health(CollectorRegistry(), lambda: False, lambda: faults[0])

    def status(path: str) -> int:
        return health.answer(Request("GET", path)).status

    assert status("/healthz") == status("/livez?verbose") == 200
    assert status("/readyz") == 503
    assert status("/metrics") == 200
    assert status("/debug") == health.answer(Request("POST", "/healthz")).status == 404
    faults.pop(0)
    assert health.answer(Request("GET", "/healthz")).body == b"a watch is dead\n"
    assert status("/healthz") == 500
