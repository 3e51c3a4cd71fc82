"""Two managers whose clocks are eight minutes apart: a change of the leader writes nothing anew."""

import json
from contextlib import ExitStack

from api.kube.meta import ObjectMeta
from api.kube.times import rfc3339
from cluster import NODES, PODS, Key
from cluster.twin import Twin
from controllers.kinds import CONFIG_MAP, NODE_METRIC, NODE_RESOURCE_TOPOLOGY, ConfigMap
from controllers.plans.overcommit import BATCH, Overcommit
from controllers.plans.taints import Taints
from tests.capacity import NOW, a_node, a_pod, a_report, a_usage, to_load
from tests.managed import CONFIG, built, running
from tests.waiting import wait_for

SKEW_SECONDS = 240.0
HANDOVERS = 6
KEY = "node.koordinator.sh/eviction-cooldown"


def test_the_lead_may_go_back_and_forth_between_skewed_clocks() -> None:
    wish = {
        "key": KEY,
        "value": "evicted",
        "effect": "NoSchedule",
        "strategy": "eviction_cooldown",
        "until": rfc3339(NOW + 3000),
    }
    report = a_report(system=(7, "12G"), pods=[a_usage("prod", 11, "11G")], extensions={"wantedTaints": [wish]})
    maps = ConfigMap(
        metadata=ObjectMeta(name=CONFIG.name, namespace=CONFIG.namespace),
        data={"colocation-config": json.dumps({"enable": True, "updateTimeThresholdSeconds": 1})},
    )
    with Twin() as twin, ExitStack() as stack:
        for kind in (NODE_METRIC, NODE_RESOURCE_TOPOLOGY):
            twin.serve(kind)
        twin.load(CONFIG_MAP, [to_load(maps)])
        twin.load(NODES, [to_load(a_node())])
        twin.load(PODS, [to_load(a_pod("prod", 20, "20G", qos="LS", priority=9500))])
        twin.load(NODE_METRIC, [to_load(report)])
        leader, plans = [0], [0, 0]

        def plan_of(number: int, clock: float) -> None:
            def now() -> float:
                plans[number] += 1
                return clock

            controllers = {"overcommit": built(Overcommit), "taints": built(Taints)}
            stack.enter_context(running(twin, controllers, clock=now, leading=lambda: leader[0] == number))

        plan_of(0, NOW - SKEW_SECONDS)
        plan_of(1, NOW + SKEW_SECONDS)

        def settled() -> bool:
            node = twin.objects(NODES)[Key("", "n1")]
            taints = [each["key"] for each in node.get("spec", {}).get("taints") or []]
            return taints == [KEY] and BATCH[0] in node["status"]["allocatable"]

        wait_for(settled)
        first = twin.objects(NODES)[Key("", "n1")]
        for handover in range(1, HANDOVERS + 1):
            leader[0] = handover % 2
            before = plans[leader[0]]
            # A new leader plans everything at once; two clocks read after that mean that both plans are over.
            wait_for(lambda before=before: plans[leader[0]] >= before + 4)  # type: ignore[misc]
        last = twin.objects(NODES)[Key("", "n1")]
    assert last["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"], "a write too many"
