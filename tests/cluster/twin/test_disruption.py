"""The arithmetic of disruption budgets."""

from typing import Any

import pytest

from cluster import POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS, Key, merge_patch
from cluster.twin import Twin, TwinSettings

READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
LABELS = {"app": "web"}


def pod(name: str, *, ready: bool = True, owner: str = "") -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "d", "labels": LABELS}
    if owner:
        metadata["ownerReferences"] = [{"kind": "ReplicaSet", "name": owner, "uid": "u", "controller": True}]
    return {"metadata": metadata, "spec": {"nodeName": "n"}, "status": READY if ready else {"phase": "Running"}}


@pytest.mark.parametrize(
    ("spec", "ready", "unready", "replicas", "expected"),
    [
        # minAvailable as a number, as a percentage (rounded up) of what the controller wants
        pytest.param({"minAvailable": 2}, 3, 0, None, (1, 3, 2, 3), id="min-available"),
        pytest.param({"minAvailable": 2}, 1, 2, None, (0, 1, 2, 3), id="min-available-missed"),
        pytest.param({"minAvailable": "50%"}, 3, 0, None, (1, 3, 2, 3), id="min-available-half"),
        pytest.param({"minAvailable": "100%"}, 3, 0, None, (0, 3, 3, 3), id="min-available-all"),
        # maxUnavailable counts from the controller's replicas, not from what is left of them
        pytest.param({"maxUnavailable": 1}, 3, 0, None, (1, 3, 2, 3), id="max-unavailable"),
        pytest.param({"maxUnavailable": 1}, 3, 0, 5, (0, 3, 4, 5), id="max-unavailable-replica-missing"),
        pytest.param({"maxUnavailable": "30%"}, 5, 0, 5, (2, 5, 3, 5), id="max-unavailable-percent"),
        pytest.param({"maxUnavailable": 0}, 5, 0, 5, (0, 5, 5, 5), id="max-unavailable-none"),
        pytest.param({"maxUnavailable": 9}, 2, 1, None, (2, 2, 0, 3), id="max-unavailable-more-than-pods"),
    ],
)
def test_what_a_budget_allows(
    spec: dict[str, Any], ready: int, unready: int, replicas: int | None, expected: tuple[int, int, int, int]
) -> None:
    with Twin(TwinSettings(disruption_controller=True)) as twin:
        if replicas is not None:
            owner = {"metadata": {"name": "rs", "namespace": "d"}, "spec": {"replicas": replicas}}
            twin.load(REPLICA_SETS, [owner])
        owner_name = "rs" if replicas is not None else ""
        twin.load(PODS, [pod(f"r{n}", owner=owner_name) for n in range(ready)])
        twin.load(PODS, [pod(f"u{n}", ready=False, owner=owner_name) for n in range(unready)])
        selecting = {"selector": {"matchLabels": LABELS}} | spec
        twin.load(POD_DISRUPTION_BUDGETS, [{"metadata": {"name": "b", "namespace": "d"}, "spec": selecting}])
        status = twin.objects(POD_DISRUPTION_BUDGETS)[Key("d", "b")]["status"]
        names = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
        assert tuple(status[name] for name in names) == expected


def test_budgets_follow_their_pods() -> None:
    with Twin(TwinSettings(disruption_controller=True)) as twin, twin.client() as client:
        twin.load(PODS, [pod("a"), pod("b")])
        spec = {"minAvailable": 1, "selector": {"matchLabels": LABELS}}
        twin.load(POD_DISRUPTION_BUDGETS, [{"metadata": {"name": "b", "namespace": "d"}, "spec": spec}])

        def allowed() -> int:
            status: dict[str, int] = client.get(POD_DISRUPTION_BUDGETS, Key("d", "b"))["status"]
            return status["disruptionsAllowed"]

        assert allowed() == 1
        client.delete(PODS, Key("d", "a"))
        # A pod on its way out is not healthy any more.
        assert allowed() == 0
        twin.load(PODS, [pod("c")])
        assert allowed() == 1
        client.patch(POD_DISRUPTION_BUDGETS, Key("d", "b"), merge_patch({"spec": {"minAvailable": 2}}))
        assert allowed() == 0
