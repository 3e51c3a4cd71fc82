"""Outages and restarts around the enforcing agent: no container restarts, no knob is lost, nothing is restored.

The API server is away for `KOORD_OUTAGE_SECONDS`, 40 by default: half of it hung, half of it gone. With
`KOORD_OUTAGE_PODS` so many further pods are there all the time, as on a full node.
"""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest

from bench.agent import resident_bytes
from cluster import PODS, Document, Key, Query
from koordlet.enforcer.enforcer import ADOPTED_SECONDS
from koordlet.enforcer.journal_format import Kind
from tests.cluster_e2e.agent import Agent, agent_running
from tests.cluster_e2e.cgroup_layout import IS_SYSTEMD, ROOT, pod_part, processes_of
from tests.cluster_e2e.conftest import Pods
from tests.cluster_e2e.control_plane import AUDIT_LOG, CONTROL_PLANE
from tests.cluster_e2e.images import BUSYBOX
from tests.cluster_e2e.node import Node
from tests.cluster_e2e.objects import BATCH, BATCH_RESOURCES, QOS_CLASS, install, update_time
from tests.cluster_e2e.test_koordlet import BUSY, settings_below
from tests.waiting import PATIENCE, pause_after, wait_for

OUTAGE_SECONDS = float(os.environ.get("KOORD_OUTAGE_SECONDS", "40"))
CROWD = int(os.environ.get("KOORD_OUTAGE_PODS", "0"))

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(OUTAGE_SECONDS + 300 * PATIENCE)]

SERVING = BUSY
if PATIENCE == 1:
    SERVING = ["sh", "-c", "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.02; done"]
DIES_WHEN_TOLD = ["sh", "-c", f"trap 'exit 1' TERM; while :; do sleep {0.2 * min(PATIENCE, 5)}; done"]
CPU_REQUEST: Document = {"requests": {"cpu": "200m"}}
CONNECTED = "NRI: answering containerd"
_WATCH_SECONDS = 0.02
AFTER_HANDOVER_SECONDS = 5.0
LOOSE_SECONDS = 2.0 * min(PATIENCE, 4) if IS_SYSTEMD else 0.0
"""Time for which an action's file may hold the original: systemd writes it with the weight that the kubelet tells it
each minute and with each pod, and agent or guardian look at it each second at least."""
RESUME_SECONDS = 60.0
"""Time after the API server's return in which requests are counted."""
MAX_REQUESTS_PER_SECOND = 15
"""Bound on the agent's requests in the worst second after the return."""


@pytest.fixture(scope="module")
def pods(node: Node) -> Iterator[Pods]:
    """A namespace for the pods of all these tests."""
    made = Pods(node)
    yield made
    made.delete_all()


@pytest.fixture(scope="module")
def lasting_agent(node: Node, pods: Pods, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """The agent beside a service, a contender of class BE, and batch pods. It outlives all outages, as on a node."""
    install(node.client, node.name)
    crowd(pods, CROWD)
    pods.run("service", SERVING, CPU_REQUEST, metadata={"labels": {QOS_CLASS: "LS"}})
    pods.run("contender", BUSY, CPU_REQUEST, metadata={"labels": {QOS_CLASS: "BE"}})
    pods.run("batch", BUSY, BATCH_RESOURCES, metadata=BATCH)
    # Without a token to mount: the kubelet renews no volume, and so starts no container that has one, while the API
    # server is away for minutes.
    pods.run("dying", DIES_WHEN_TOLD, BATCH_RESOURCES, metadata=BATCH, automountServiceAccountToken=False)
    with agent_running(node, tmp_path_factory.mktemp("agent")) as running:
        yield running


@pytest.fixture
def agent(node: Node, pods: Pods, lasting_agent: Agent) -> Agent:
    """The agent, with all of its settings in effect and a report sent."""
    await_settings(lasting_agent, pods)
    wait_for(lambda: update_time(node.client, node.name), 120, check=lasting_agent.check, interval_seconds=0.5)
    return lasting_agent


def crowd(pods: Pods, count: int) -> None:
    """Run so many pods of two containers that do little."""
    container = {"image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sleep", "36000"]}
    spec = {
        "nodeName": pods.node.name,
        "containers": [{**container, "name": "one"}, {**container, "name": "two"}],
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
    }
    names = [f"crowd-{number}" for number in range(count)]
    for name in names:
        pods.node.client.create(PODS, {"metadata": {"name": name, "namespace": pods.namespace}, "spec": spec})
    for name in names:
        pods.await_phase(name, "Running")


def cgroup_paths(pods: Pods, name: str) -> str:
    """Part of the paths of a pod's cgroups."""
    uid = pods.node.client.get(PODS, Key(pods.namespace, name))["metadata"]["uid"]
    return pod_part(uid)


def of_pod(found: dict[str, str], part: str) -> dict[str, str]:
    return {key: value for key, value in found.items() if part in key}


def values_of(part: str) -> list[str]:
    """Values in the files of a pod's cgroups. A container that is born with its values is not in the journal."""
    return sorted(text for path, text in settings_below(ROOT).items() if part in path)


def protocol_state(agent: Agent) -> dict[str, str]:
    """Value of every attribute that holds protocol state, except where an action lies over it."""
    read = {key: entry.attribute.read() for key, entry in agent.held(Kind.PROTOCOL).items()}
    return {key: ",".join(sorted(texts)) for key, texts in read.items() if texts is not None}


def await_settings(agent: Agent, pods: Pods) -> None:
    """Wait until the batch pods, the OOM scores and the best-effort directory are set."""
    part = cgroup_paths(pods, "batch")
    dying = cgroup_paths(pods, "dying")

    def are_set() -> bool:
        state = protocol_state(agent)
        has_action = any("besteffort" in key for key in agent.held(Kind.ACTION))
        return len(of_pod(state, part)) >= 3 and len(of_pod(state, dying)) >= 3 and has_action

    wait_for(
        are_set,
        120,
        check=lambda: f"{sorted(agent.held(Kind.ACTION))} {sorted(protocol_state(agent))} {agent.check()}",
        interval_seconds=0.2,
    )


def containers(pods: Pods) -> dict[str, tuple[str, int]]:
    """Container id and restarts of every pod."""
    found = {}
    for item in pods.node.client.list(PODS, Query(pods.namespace)).items:
        for status in item.value["status"]["containerStatuses"]:
            name = item.value["metadata"]["name"]
            found[name if status["name"] == "main" else f"{name}/{status['name']}"] = (
                status["containerID"],
                status["restartCount"],
            )
    return found


class Watcher:
    """Reads files over and over beside a test, and keeps every value that was seen."""

    def __init__(self, agent: Agent) -> None:
        self.entries = agent.held(Kind.ACTION)
        self.loose: dict[str, list[float]] = {key: [] for key in self.entries}
        """Seconds of each time for which an action's file held the original."""
        self._loose_since: dict[str, float] = {}
        self.protocol = agent.held(Kind.PROTOCOL)
        self.expected = protocol_state(agent)
        self.strayed: dict[str, str] = {}
        self.reads = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        pause_seconds = _WATCH_SECONDS
        while not self._stop.wait(pause_seconds):
            begun = time.thread_time()
            self.reads += 1
            for key, entry in self.entries.items():
                self._note(key, is_loose=entry.original in (entry.attribute.read() or ()))
            for key, text in self.expected.items():
                now = self.protocol[key].attribute.read()
                if now is not None and ",".join(sorted(now)) != text:
                    self.strayed[key] = f"{text} became {sorted(now)}"
            pause_seconds = pause_after(time.thread_time() - begun, _WATCH_SECONDS)

    def _note(self, key: str, *, is_loose: bool) -> None:
        now = time.monotonic()
        if is_loose and key not in self._loose_since:
            self._loose_since[key] = now
            self.loose[key].append(0.0)
        elif is_loose or key in self._loose_since:
            self.loose[key][-1] = now - self._loose_since[key]
        if not is_loose:
            self._loose_since.pop(key, None)

    def restored(self) -> list[str]:
        """Actions whose file held the original, where systemd writes it too for longer than `LOOSE_SECONDS`."""
        return [key for key, times in self.loose.items() if times and (not IS_SYSTEMD or max(times) > LOOSE_SECONDS)]

    def restored_of_class(self) -> list[str]:
        """Those of the best-effort directory, which its NodeSLO asks for all the time."""
        return [key for key in self.restored() if "besteffort" in key]


@contextmanager
def watched(agent: Agent) -> Iterator[Watcher]:
    """Watch all settings in effect."""
    watcher = Watcher(agent)
    watcher._thread.start()
    try:
        yield watcher
    finally:
        watcher._stop.set()
        watcher._thread.join()
    assert watcher.reads > 5


def requests(node: Node) -> list[tuple[float, str]]:
    """When the agent's requests were answered, in seconds since the epoch, and what they were."""
    found = []
    for line in (node.control.directory / AUDIT_LOG).read_text().splitlines():
        event = json.loads(line)
        if event["stage"] == "ResponseComplete" or event["verb"] == "watch":
            at = datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
            found.append((at, f"{event['verb']} {event.get('objectRef', {}).get('resource', '')}"))
    return sorted(set(found))


@pytest.mark.skipif(CONTROL_PLANE in os.environ, reason="the API server runs on another machine")
def test_the_api_server_is_away(node: Node, pods: Pods, agent: Agent) -> None:
    before, state = containers(pods), protocol_state(agent)
    dying = cgroup_paths(pods, "dying")
    wanted = values_of(dying)
    reported = update_time(node.client, node.name)
    ticks: set[float] = set()
    sizes: list[int] = []
    kill_soon = before["dying"][0].partition("://")[2]
    (process, *_) = processes_of(kill_soon)
    programs = node.programs
    begun = time.time()
    programs.signal("kube-apiserver", signal.SIGSTOP)
    try:
        steady = hold_on(agent, begun + OUTAGE_SECONDS / 2, ticks, sizes)
        # A container that dies now is started again by the kubelet alone, and is to be born with its values.
        os.kill(process, signal.SIGTERM)
        programs.kill("kube-apiserver")
        steady |= hold_on(agent, begun + OUTAGE_SECONDS, ticks, sizes)
        assert not steady, steady
        wait_for(
            lambda: values_of(dying) == wanted and not processes_of(kill_soon),
            60,
            check=lambda: f"{values_of(dying)}, not {wanted}\n{node.programs.check()}",
            interval_seconds=0.5,
        )
    finally:
        programs.resume("kube-apiserver")
    returned = time.time()
    wait_for(node.is_ready, 120, interval_seconds=0.2)
    wait_for(lambda: update_time(node.client, node.name) > reported, 180, check=agent.check, interval_seconds=0.5)
    resumed = time.time() - returned
    time.sleep(max(RESUME_SECONDS - resumed, 0))
    after = containers(pods)
    assert after["dying"][1] == before["dying"][1] + 1
    assert {name: each for name, each in after.items() if name != "dying"} == {
        name: each for name, each in before.items() if name != "dying"
    }
    kept = {key: text for key, text in state.items() if dying not in key}
    assert {key: text for key, text in protocol_state(agent).items() if key in kept} == kept
    assert not agent.lost(Kind.ACTION) | agent.lost(Kind.PROTOCOL)
    asked = [(at, what) for at, what in requests(node) if at >= returned]
    each_second = Counter(int(at - asked[0][0]) for at, _ in asked)
    print(
        f"away {returned - begun:.0f} s, at least {len(ticks)} ticks in it; first report {resumed:.1f} s after the "
        f"start of the API server; {len(asked)} requests within {time.time() - returned:.0f} s, at most "
        f"{max(each_second.values())} in a second, by second {[each_second[n] for n in range(20)]}: "
        f"{Counter(what for _, what in asked).most_common()}; resident MB in and after the outage, of which a tenth is "
        f"shown: {[round(size / 1e6, 1) for size in sizes[:: max(len(sizes) // 10, 1)]]}, then "
        f"{resident_bytes(agent.process.pid) / 1e6:.1f}"
    )
    assert len(ticks) >= OUTAGE_SECONDS / 3 / PATIENCE
    assert max(each_second.values()) <= MAX_REQUESTS_PER_SECOND


def hold_on(agent: Agent, until: float, ticks: set[float], sizes: list[int]) -> dict[str, str]:
    """Check the settings each second until then; return those that were lost.

    `ticks` gets the length of ticks, `sizes` the agent's resident bytes.
    """
    lost: dict[str, str] = {}
    quota = [key for key in agent.held(Kind.ACTION) if "besteffort" in key]
    while time.time() < until:
        agent.check()
        ticks.add(agent.metric("koord_agent_tick_seconds"))
        sizes.append(resident_bytes(agent.process.pid))
        lost |= agent.lost(Kind.PROTOCOL) | agent.lost(Kind.ACTION)
        lost |= {key: "given up" for key in quota if key not in agent.held(Kind.ACTION)}
        time.sleep(1.0)
    return lost


def test_the_kubelet_restarts(node: Node, pods: Pods, agent: Agent) -> None:
    before, state = containers(pods), protocol_state(agent)
    with watched(agent) as watcher:
        node.programs.restart("kubelet")
        wait_for(node.kubelet.answers, 60, check=node.programs.check, interval_seconds=0.2)
        time.sleep(12 * min(PATIENCE, 4))  # longer than the kubelet's and our own full reads take
    assert watcher.restored_of_class() == []
    check_after(agent, pods, watcher, before, state)


def test_the_runtime_restarts(node: Node, pods: Pods, agent: Agent) -> None:
    before, state = containers(pods), protocol_state(agent)
    connections = agent.log.read_text().count(CONNECTED)
    with watched(agent) as watcher:
        node.programs.restart("containerd")
        wait_for(node.runtime.answers, 60, check=node.programs.check, interval_seconds=0.2)
        time.sleep(12 * min(PATIENCE, 4))
    assert watcher.restored_of_class() == []
    check_after(agent, pods, watcher, before, state)
    wait_for(lambda: agent.log.read_text().count(CONNECTED) > connections, 60, check=agent.check)
    pods.run("born-later", BUSY, BATCH_RESOURCES, metadata=BATCH)
    part = cgroup_paths(pods, "born-later")
    wait_for(lambda: len(of_pod(protocol_state(agent), part)) >= 3, 60, check=agent.check)


def test_the_agent_is_rolled_out(pods: Pods, agent: Agent) -> None:
    before, state = containers(pods), protocol_state(agent)
    with watched(agent) as watcher:
        began = time.monotonic()
        agent.end(signal.SIGTERM)
        deadline = agent.handover_until()
        assert deadline is not None
        ended = time.monotonic()
        time.sleep(5)
        agent.again()
        wait_for(lambda: agent.handover_until() is None, check=agent.check, interval_seconds=0.2)
        taken = time.monotonic()
        assert taken < deadline, "no agent was there in time"
        decided = max(deadline, taken + ADOPTED_SECONDS)
        time.sleep(max(decided - taken - 1.0, 0.0))
        in_time = watcher.restored()
        # After the deadline an answer to a verdict ends with its cause, what the NodeSLO asks for does not.
        time.sleep(max(decided + AFTER_HANDOVER_SECONDS - time.monotonic(), 0.0))
        await_settings(agent, pods)
    print(f"ended {ended - began:.1f} s after it was told to, taken over {taken - ended:.1f} s later")
    assert in_time == []
    assert watcher.restored_of_class() == []
    check_after(agent, pods, watcher, before, state)


def test_the_agent_is_killed(pods: Pods, agent: Agent) -> None:
    before, state = containers(pods), protocol_state(agent)
    with watched(agent) as watcher:
        agent.end(signal.SIGKILL)
        wait_for(watcher.restored, 60, check=lambda: "the guardian restores actions")
        time.sleep(2)
        agent.again()
        await_settings(agent, pods)
    check_after(agent, pods, watcher, before, state)


def check_after(
    agent: Agent, pods: Pods, watcher: Watcher, before: dict[str, tuple[str, int]], state: dict[str, str]
) -> None:
    """Check that no container was restarted and that protocol state was in effect all the time."""
    assert containers(pods) == before
    assert watcher.strayed == {}
    assert {key: text for key, text in protocol_state(agent).items() if key in state} == state
    wait_for(lambda: not agent.lost(Kind.ACTION), 30, check=lambda: str(agent.lost(Kind.ACTION)))
    loose = {
        key.rpartition("/")[2]: [round(each, 2) for each in times] for key, times in watcher.loose.items() if times
    }
    print(f"{watcher.reads} reads of {len(watcher.expected)} protocol settings and {len(watcher.entries)} actions")
    print(f"seconds at the original: {loose}; set again {agent.told('set_again')} times in all")
