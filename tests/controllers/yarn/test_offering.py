"""The controller's plans: which NodeManager is a node's, the annotation, and what silence of either side changes."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from api.crds import NodeMetric
from cluster.resources import Key
from controllers.capacity.third_party import ANNOTATION_ORIGIN, ANNOTATION_THIRD_PARTY
from controllers.kinds import NODE, NODE_METRIC, POD, Node, Pod
from controllers.runtime.writes import Writes
from controllers.yarn.board import Board
from controllers.yarn.offering import Offering
from controllers.yarn.protocol import ANNOTATION_CLUSTER_ID, ANNOTATION_NODE_ID, Capability, NodeReport
from controllers.yarn.settings import ClusterSettings, CopilotSettings
from tests.capacity import NOW, a_node, a_pod, a_report, usage
from tests.managed import view_of

GIB = 1 << 30
CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
SETTINGS = CopilotSettings(clusters={"main": ClusterSettings(addresses=("http://rm1:8088",))})


def node(name: str = "n1", cpu: int = 20_000, memory: int = 40 * GIB, **annotations: str) -> Node:
    return a_node(name, published={CPU: cpu, MEMORY: memory}, annotations=annotations)


def allocations(*entries: tuple[str, int, int]) -> str:
    listed = [
        {"name": name, "priority": "koord-batch", "resources": {CPU: str(cpu), MEMORY: str(memory)}}
        for name, cpu, memory in entries
    ]
    return json.dumps({"allocations": listed})


def holding(cpu: int = 10_000, memory: int = 20 * GIB) -> Node:
    """Half of the node is withheld for YARN already."""
    origin = json.dumps({"resources": {CPU: "20000", MEMORY: str(40 * GIB)}})
    stated = {ANNOTATION_ORIGIN: origin, ANNOTATION_THIRD_PARTY: allocations(("hadoop-yarn", cpu, memory))}
    return a_node("n1", published={CPU: 20_000 - cpu, MEMORY: 40 * GIB - memory}, annotations=stated)


def manager(name: str = "nm-1", on: str = "n1", namespace: str = "hadoop-yarn", **annotations: str) -> Pod:
    pod = a_pod(name, node=on, labels={"app.kubernetes.io/component": "node-manager"}, annotations=annotations)
    meta = {"namespace": namespace, "name": name}
    return _replaced(pod, meta)


def _replaced(pod: Pod, meta: dict[str, str]) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, **meta))


def report(
    node_id: str = "n1:45454", total: tuple[int, int] = (0, 0), used: tuple[int, int] = (0, 0), state: str = "RUNNING"
) -> NodeReport:
    have, hold = (Capability(cores, gib * 1024) for cores, gib in (total, used))
    return NodeReport(node_id, node_id.partition(":")[0], state, have, hold)


class Copilot:
    """An Offering and its board, with one YARN cluster."""

    def __init__(self, settings: CopilotSettings = SETTINGS) -> None:
        self.board = Board()
        self.offering = Offering(settings, self.board)

    def hears(self, *reports: NodeReport, cluster: str = "main") -> "Copilot":
        self.board.report(cluster, {each.node_id: each for each in reports})
        return self

    def plan(
        self, nodes: Sequence[Node], pods: Sequence[Pod], metrics: Sequence[NodeMetric] = (), now: float = NOW
    ) -> Writes:
        view = view_of(self.offering, {NODE: nodes, POD: pods, NODE_METRIC: metrics})
        return self.offering.plan(view, now)

    def offered(self, cluster: str = "main") -> dict[str, Capability]:
        return {name: each.capability for name, each in self.board.offers(cluster).items()}


def stated(writes: Writes) -> dict[str, Any]:
    """Return the one annotation that is written, decoded; None for its removal."""
    (write,) = writes.writes
    text = write.body["metadata"]["annotations"][ANNOTATION_THIRD_PARTY]
    found: dict[str, Any] = {} if text is None else json.loads(text)
    return found


def notes(writes: Writes) -> list[str]:
    return [each.note for each in writes.warnings]


def test_a_share_is_withheld_first_and_offered_then() -> None:
    copilot = Copilot().hears(report())
    writes = copilot.plan([node()], [manager()])
    assert stated(writes) == json.loads(allocations(("hadoop-yarn", 10_000, 20 * GIB)))
    assert copilot.offered() == {"n1:45454": Capability(0, 0)}
    writes = copilot.plan([holding()], [manager()])
    assert not writes.writes
    assert copilot.offered() == {"n1:45454": Capability(10, 20 * 1024)}


def test_what_pods_ask_for_is_not_offered() -> None:
    copilot = Copilot().hears(report(total=(10, 20)))
    batch = a_pod("spark", requests={CPU: 8_000, MEMORY: 30 * GIB}, qos="BE")
    copilot.plan([holding()], [manager(), batch])
    assert copilot.offered() == {"n1:45454": Capability(6, 5 * 1024)}


def test_entries_of_others_stay() -> None:
    text = allocations(("other", 1, 2), ("hadoop-yarn", 5, 6))
    writes = Copilot().hears(report()).plan([node(**{ANNOTATION_THIRD_PARTY: text})], [manager()])
    assert stated(writes) == json.loads(allocations(("other", 1, 2), ("hadoop-yarn", 10_000, 20 * GIB)))


def test_an_annotation_that_cannot_be_read_is_replaced() -> None:
    writes = Copilot().hears(report()).plan([node(**{ANNOTATION_THIRD_PARTY: "["})], [manager()])
    assert stated(writes)["allocations"][0]["name"] == "hadoop-yarn"


def test_the_node_manager_is_the_annotated_one_else_that_of_the_host() -> None:
    copilot = Copilot().hears(report("n1:1"), report("elsewhere:2"))
    copilot.plan([holding()], [manager(**{ANNOTATION_NODE_ID: "elsewhere:2"})])
    assert list(copilot.offered()) == ["elsewhere:2"]
    copilot.plan([holding()], [manager()])
    assert list(copilot.offered()) == ["n1:1"]


def test_a_restarted_node_manager_is_the_one_that_runs() -> None:
    copilot = Copilot().hears(report("n1:1", state="LOST"), report("n1:2"))
    copilot.plan([holding()], [manager()])
    assert list(copilot.offered()) == ["n1:2"]


@pytest.mark.parametrize(
    ("reports", "pods", "problem"),
    [
        pytest.param([report("n1:1"), report("n1:2")], [manager()], "several NodeManagers run on host n1", id="hosts"),
        pytest.param([report()], [manager("a"), manager("b")], "are both a NodeManager", id="pods"),
        pytest.param([report()], [manager(**{ANNOTATION_CLUSTER_ID: "x"})], "names YARN cluster x", id="cluster"),
    ],
)
def test_what_is_not_clear_is_said(reports: list[NodeReport], pods: list[Pod], problem: str) -> None:
    writes = Copilot().hears(*reports).plan([holding()], pods)
    assert any(problem in note for note in notes(writes))


def test_one_node_manager_claimed_by_two_nodes_is_offered_nothing() -> None:
    copilot = Copilot().hears(report("n1:1"))
    pods = [manager("a"), manager("b", on="n2", **{ANNOTATION_NODE_ID: "n1:1"})]
    writes = copilot.plan([holding(), node("n2")], pods)
    assert copilot.offered() == {}
    assert not writes.writes
    assert len([note for note in notes(writes) if "claimed by several nodes" in note]) == 2


def test_pods_of_other_namespaces_are_no_node_managers() -> None:
    copilot = Copilot().hears(report())
    writes = copilot.plan([node()], [manager(namespace="guest")])
    assert not writes.writes
    assert copilot.offered() == {}


def test_a_cluster_that_is_silent_changes_nothing() -> None:
    copilot = Copilot()
    copilot.board.forget("main", "rm1 and rm2: no answer")
    writes = copilot.plan([holding()], [manager()])
    assert not writes.writes
    assert copilot.offered() == {}
    assert not notes(writes), "an Event for each node would be a flood"


def test_an_unhealthy_node_manager_is_offered_nothing() -> None:
    copilot = Copilot().hears(report(total=(10, 20), used=(2, 4), state="UNHEALTHY"))
    writes = copilot.plan([holding()], [manager()])
    assert copilot.offered() == {"n1:45454": Capability(0, 0)}
    assert not writes.writes, "the ResourceManager still counts it"
    assert "unhealthy" in notes(writes)[0]


APPLICATION = {"name": "hadoop-yarn", "priority": "koord-batch", "qos": "BE"}


def test_a_lost_node_manager_holds_what_its_containers_use() -> None:
    copilot = Copilot().hears(report(total=(10, 20), state="LOST"))
    running = a_report(applications=[{**APPLICATION, "usage": usage(3, "6Gi")}])
    writes = copilot.plan([holding()], [manager()], [running])
    assert stated(writes) == json.loads(allocations(("hadoop-yarn", 3_000, 6 * GIB)))
    ended = a_report(applications=[{**APPLICATION, "usage": usage("1m", "8Ki")}])
    assert stated(copilot.plan([holding()], [manager()], [ended])) == {}


def test_without_a_report_of_its_use_it_holds_it_for_a_time() -> None:
    copilot = Copilot().hears(report(state="LOST"))
    old = a_report(applications=[{**APPLICATION, "usage": usage(0, 0)}], updated="2027-01-15T07:00:00Z")
    assert not copilot.plan([holding()], [manager()], [old]).writes
    assert not copilot.plan([holding()], [manager()], now=NOW + 599).writes
    assert stated(copilot.plan([holding()], [manager()], now=NOW + 601)) == {}


def test_a_node_without_a_node_manager_is_given_back_to_pods() -> None:
    copilot = Copilot().hears(report())
    assert not copilot.plan([holding()], []).writes
    assert stated(copilot.plan([holding()], [], now=NOW + 601)) == {}
    assert not copilot.plan([node()], [], now=NOW + 602).writes


def test_a_node_manager_that_is_back_starts_its_time_anew() -> None:
    copilot = Copilot().hears(report(state="LOST"))
    copilot.plan([holding()], [manager()])
    copilot.hears(report(total=(10, 20))).plan([holding()], [manager()], now=NOW + 500)
    copilot.hears(report(state="LOST"))
    assert not copilot.plan([holding()], [manager()], now=NOW + 700).writes


def test_a_fail_over_leaves_node_managers_time_to_register() -> None:
    copilot = Copilot().hears()
    idle = a_report(applications=[{**APPLICATION, "usage": usage(1, "1Gi")}])
    for seconds in (1, 59):
        writes = copilot.plan([holding()], [manager()], [idle], now=NOW + seconds)
        assert not writes.writes
        assert not notes(writes)
    view = view_of(copilot.offering, {NODE: [holding()], POD: [manager()], NODE_METRIC: [idle]})
    assert "does not know the NodeManager yet" in copilot.offering.explain(view, "nodes", Key("", "n1"), NOW)[0]
    late = copilot.plan([holding()], [manager()], [idle], now=NOW + 62)
    assert stated(late) == json.loads(allocations(("hadoop-yarn", 1_000, GIB)))
    assert "does not know" in notes(late)[0]


def test_without_batch_resources_nothing_is_offered() -> None:
    copilot = Copilot().hears(report(total=(10, 20), used=(1, 2)))
    writes = copilot.plan([a_node()], [manager()])
    assert copilot.offered() == {"n1:45454": Capability(0, 0)}
    assert stated(writes) == json.loads(allocations(("hadoop-yarn", 1_000, 2 * GIB)))


def test_explain() -> None:
    copilot = Copilot().hears(report(total=(10, 20), used=(1, 2)))
    view = view_of(copilot.offering, {NODE: [holding()], POD: [manager()], NODE_METRIC: []})
    lines = copilot.offering.explain(view, "nodes", Key("", "n1"), NOW)
    assert lines[0].startswith("n1:45454 is offered 10 vcores and 20480 MiB, has 10 vcores")
    assert copilot.offering.explain(view, "nodes", Key("", "n2"), NOW) == ()
    copilot.board.forget("main", "why")
    assert copilot.offering.explain(view, "nodes", Key("", "n1"), NOW) == ("YARN cluster main does not answer: why",)


def test_an_offer_that_was_replaced_is_not_sent() -> None:
    copilot = Copilot().hears(report())
    copilot.plan([holding()], [manager()])
    sent = copilot.board.send("main", "n1:45454")
    assert sent is not None
    assert copilot.board.send("main", "n1:45454") is None, "it is on its way"
    # A plan made before the answer counts the offer as made: nothing of it goes back to pods.
    writes = copilot.plan([holding()], [manager(), a_pod("p", requests={CPU: 18_000, MEMORY: 36 * GIB}, qos="BE")])
    assert not writes.writes
    assert copilot.board.offers("main")["n1:45454"].seen == Capability(10, 20 * 1024)
