"""The API server away for ten minutes of the manager's clock: nothing is withdrawn, nothing stampedes."""

import logging

import pytest

from api.kube.times import rfc3339
from cluster import NODES, Key
from cluster.twin import Fault, FaultType, Twin, TwinSettings
from controllers.kinds import CONFIG_MAP, NODE_METRIC
from controllers.plans.overcommit import Overcommit
from controllers.runtime.settings import LoopSettings
from tests.capacity import NOW, a_node, a_report, to_load
from tests.controllers.plans.test_overcommit import config
from tests.managed import built, running
from tests.waiting import wait_for

NODE_COUNT = 20
BATCH_CPU = "kubernetes.io/batch-cpu"
LOOP = LoopSettings(round_seconds=0.02, requests_per_second=1000.0, burst=1000, retry_seconds=0.05, outage_seconds=0.5)


def sold(twin: Twin) -> list[str | None]:
    return [node["status"]["allocatable"].get(BATCH_CPU) for node in twin.objects(NODES).values()]


def test_ten_minutes_without_an_api_server_withdraw_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    names = [f"n{number}" for number in range(NODE_COUNT)]
    moment = [NOW]
    with Twin(TwinSettings(bookmark_seconds=0.1)) as twin:
        twin.serve(NODE_METRIC)
        twin.load(CONFIG_MAP, [to_load(config())])
        twin.load(NODES, [to_load(a_node(name)) for name in names])
        twin.load(NODE_METRIC, [to_load(a_report(name, system=(7, "12G"), updated=rfc3339(NOW))) for name in names])
        with running(twin, {"overcommit": built(Overcommit)}, settings=LOOP, clock=lambda: moment[0]) as loop:
            wait_for(lambda: sold(twin) == ["58000"] * NODE_COUNT)
            before = len(twin.history(NODES))
            twin.faults.add(Fault(FaultType.DROP))
            twin.drop_watches()
            wait_for(lambda: "the API server is away" in caplog.text)
            assert not loop.fault()
            moment[0] += 600.0
            twin.faults.clear()
            wait_for(lambda: "the API server is back" in caplog.text)
            # The last reports are more than 15 minutes old now, and the nodes have had five to renew them.
            moment[0] += 302.0
            with twin.client() as client:
                report = to_load(a_report("n0", system=(17, "12G"), updated=rfc3339(moment[0])))
                client.modify(
                    NODE_METRIC,
                    Key("", "n0"),
                    lambda stored: {**stored, "status": report["status"]},
                    subresource="status",
                )
            wait_for(lambda: sold(twin)[0] == "48000")
            assert sold(twin)[1:] == ["58000"] * (NODE_COUNT - 1)
            assert len(twin.history(NODES)) == before + 1, "nothing else was written for the outage"
