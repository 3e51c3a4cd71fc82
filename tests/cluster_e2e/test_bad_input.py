"""Bad input on a real node costs what it is about: pods, a NodeSLO, and directories that claim to be another's pod."""

import contextlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from api.crds import NODE_SLO
from api.protocol import ANNOTATION_EXTENDED_RESOURCE_SPEC, ANNOTATION_RESOURCE_STATUS
from cluster import EVENTS, Document, Key, Patch, PatchType, custom
from cluster.errors import Invalid
from koordlet.enforcer.journal_format import Kind
from tests.cluster_e2e.agent import Agent, agent_running
from tests.cluster_e2e.cgroup_layout import BEST_EFFORT, ROOT, container_name, pod_part, pod_path, tops
from tests.cluster_e2e.conftest import Pods, container_id
from tests.cluster_e2e.node import Node
from tests.cluster_e2e.objects import BATCH, BATCH_RESOURCES, QOS_CLASS, SLO, install
from tests.cluster_e2e.test_enforcement import uid_of
from tests.cluster_e2e.test_koordlet import BUSY, settings_below
from tests.cluster_e2e.test_node import BURSTABLE, SLEEP
from tests.cluster_e2e.test_nri import EXPECTED, files_of
from tests.waiting import wait_for

pytestmark = pytest.mark.cluster

SLOS = custom(NODE_SLO).of(dict)
HOSTILE_NAME = "x\x1b[31m{'a':\"b\"}\u202e"
TORN: Document = {
    "labels": BATCH["labels"],
    "annotations": {ANNOTATION_EXTENDED_RESOURCE_SPEC: "{", ANNOTATION_RESOURCE_STATUS: '{"cpuset": "0-"}'},
}
MALFORMED: dict[str, tuple[Document, Document, str]] = {
    "no-class": ({}, {"labels": {QOS_CLASS: "PLATINUM"}}, f"{QOS_CLASS}='PLATINUM' is no class"),
    "not-believed": ({}, {"labels": {QOS_CLASS: "LSE"}}, "is not believed of a BestEffort pod"),
    "all-cpus": (
        BURSTABLE,
        {"labels": {QOS_CLASS: "LSR"}, "annotations": {ANNOTATION_RESOURCE_STATUS: '{"cpuset": "0-4095"}'}},
        "CPUs, but 50m are requested",
    ),
    "torn": (BATCH_RESOURCES, TORN, ANNOTATION_RESOURCE_STATUS),
}
"""By pod: resources, metadata, and what is said of it."""


@contextmanager
def directories(uid: str, container: str) -> Iterator[list[Path]]:
    """In every hierarchy a pod of this uid and its container where another class of pods is, with a process in it, and
    a directory whose name is made to mislead."""
    made: list[Path] = []
    claimed, hostile = pod_path(uid, "Burstable").lstrip("/"), f"{BEST_EFFORT.lstrip('/')}/{HOSTILE_NAME}"
    names = (claimed, f"{claimed}/{container_name(container)}", hostile)
    with subprocess.Popen(["sleep", "3600"]) as process:
        try:
            roots = dict.fromkeys(top.parent.resolve() for top in tops())
            for root in [each for each in roots if (each / claimed).parent.is_dir()]:
                for name in names:
                    make(root / name)
                    made.append(root / name)
                with contextlib.suppress(OSError):  # a cpuset of v1 without CPUs takes none
                    (root / names[1] / "cgroup.procs").write_text(str(process.pid))
            yield made
        finally:
            process.kill()
            process.wait()
            wait_for(lambda: not [each for each in reversed(made) if not removed(each)])


def make(directory: Path) -> None:
    """Make a cgroup whose children have the files of CPU and memory."""
    directory.mkdir()
    with contextlib.suppress(OSError):  # cgroup v1 has no such file
        (directory / "cgroup.subtree_control").write_text("+cpu +memory")


def removed(directory: Path) -> bool:
    """Remove a cgroup; false while the kernel still has its last process."""
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def values_below(places: list[Path]) -> dict[str, str]:
    """Settings of these cgroups."""
    wanted = tuple(f"{place}/" for place in places)
    found = {str(Path(path).resolve()): text for path, text in settings_below(ROOT).items()}
    return {path: text for path, text in found.items() if path.startswith(wanted)}


def said_of(agent: Agent) -> dict[str, bool]:
    """Whether the log names each malformed pod together with what is wrong with it."""
    lines = agent.log.read_text().splitlines()
    return {
        name: any(f"/{name}" in line and words in line for line in lines) for name, (_, _, words) in MALFORMED.items()
    }


def test_malformed_pods_and_false_directories_cost_nothing_else(node: Node, pods: Pods, tmp_path: Path) -> None:
    # Without a quota for all best-effort pods, under which single ones have none.
    install(node.client, node.name, {"extensions": SLO["extensions"]})
    batch = pods.run("batch", BUSY, BATCH_RESOURCES, metadata=BATCH)
    uid = batch["metadata"]["uid"]
    for name, (resources, metadata, _) in MALFORMED.items():
        pods.run(name, SLEEP, resources, metadata=metadata)
    claims_cpus = pod_part(uid_of(pods, "all-cpus"))
    with directories(uid, container_id(batch)) as false:
        before = values_below(false)
        assert before
        with agent_running(node, tmp_path) as agent:
            wait_for(lambda: all(said_of(agent).values()), 120, check=lambda: f"{said_of(agent)} {agent.check()}")
            wait_for(lambda: files_of(uid) == EXPECTED, 60, check=lambda: f"{files_of(uid)} {agent.check()}")
            # Of the newest tick, which may have begun before pods were known.
            wait_for(lambda: agent.metric("koord_agent_pod_problems") >= 2, 60, check=agent.check, interval_seconds=0.5)
            held = [key for kind in Kind for key in agent.held(kind)]
            assert "Traceback" not in agent.check()
        assert values_below(false) == before
    written = [key for key in held if pod_part(uid) in key]
    assert written
    assert [key for key in written if pod_path(uid, "BestEffort") not in key] == []
    assert [key for key in held if claims_cpus in key and "cpuset" in key] == []
    assert "\x1b" not in agent.log.read_text()
    print(f"{len(held)} settings held, none of {len(before)} false ones changed")


def test_a_node_slo_with_a_bad_field_keeps_what_was_and_is_told(node: Node, pods: Pods, tmp_path: Path) -> None:
    install(node.client, node.name)
    pods.run("batch", BUSY, BATCH_RESOURCES, metadata=BATCH)
    key = Key("", node.name)
    with pytest.raises(Invalid):  # what the schema forbids the server itself refuses
        patch(node, key, {"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": 5000}})
    with agent_running(node, tmp_path) as agent:

        def is_suppressed() -> bool:
            return any("besteffort" in each for each in agent.held(Kind.ACTION))

        wait_for(is_suppressed, 120, check=agent.check, interval_seconds=0.2)
        scores = {each for each in agent.held(Kind.PROTOCOL) if "oom_score" in each}
        patch(node, key, {"extensions": {"oomScore": {"enable": True, "BE": "much"}}})
        wait_for(lambda: refusals(node), 60, check=agent.check, interval_seconds=0.2)
        assert is_suppressed()
        assert scores <= set(agent.held(Kind.PROTOCOL))
        assert "oomScore" in refusals(node)[0]
        patch(node, key, {"extensions": SLO["extensions"]})
        assert agent.lost(Kind.ACTION) == {}
    print(f"told on the node: {refusals(node)[0]}")


def patch(node: Node, key: Key, spec: Document) -> None:
    """Change the NodeSLO's spec."""
    node.client.patch(SLOS, key, Patch(PatchType.MERGE, {"spec": spec}))


def refusals(node: Node) -> list[str]:
    """Notes of the Events that say that a field of the NodeSLO was refused."""
    found = [item.value for item in node.client.list(EVENTS).items if item.value]
    return [event["note"] for event in found if event["reason"] == "NodeSLORefused"]
