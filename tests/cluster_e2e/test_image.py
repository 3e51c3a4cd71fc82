"""The image on a real node, from its installation to its removal: every program of the chart runs from it and acts.

KOORD_IMAGE is the archive that `python -m deploy.release image` makes. Nothing of the host's interpreter or libraries
is in these containers. A stock kube-scheduler places the chart's pods, koord-scheduler of the image the service.
Service and batch work are those that the Vagrant machine gets. On a busy machine, whose other work costs the service a
quarter of a CPU too, no verdict ends. KOORD_IMAGE_SETTINGS is a file of settings for the agent in place of `SETTINGS`.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from api.crds import NODE_SLO
from cluster import CONFIG_MAPS, DEPLOYMENTS, EVENTS, PODS, DeleteOptions, Document, Key, Query, custom
from cluster.errors import NotFound
from cluster.transport import Request
from koordlet.enforcer.journal_format import JournalEntry, Kind, decode
from tests.cluster_e2e import test_chart as chart
from tests.cluster_e2e.cgroup_layout import ROOT, TOP, pod_part, processes_of
from tests.cluster_e2e.conftest import Pods, container_id
from tests.cluster_e2e.control_plane import HOST, free_ports
from tests.cluster_e2e.node import Node
from tests.cluster_e2e.objects import BATCH, BATCH_RESOURCES, QOS_CLASS
from tests.cluster_e2e.release import REPOSITORY, Release
from tests.cluster_e2e.test_enforcement import SOME_CPU, uid_of
from tests.cluster_e2e.test_koordlet import BUSY, settings_below
from tests.deploy.charts import ROOT as TREE
from tests.e2e.test_dashboards import Prometheus, program
from tests.waiting import PATIENCE, alive, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SERVERS = ("koord-manager", "koord-scheduler", "koord-descheduler")
NOBODY = 65532
NEXT = "next"
"""Tag of the image that the release is upgraded to."""
LONGEST_GAP_SECONDS = 1.0
"""Time between two looks at an action within which it could have been undone and done again unseen."""
PROTECTED = TREE / "deploy" / "vagrant" / "protected.yaml"
"""Service and batch work; with the programs, and the second pod of each during an upgrade, they fit into two CPUs."""
SETTINGS = """
[page]
remote = true
[serving]
enabled = true
[response]
hold_seconds = 300.0
fast_path = false
[detection.rules.cpu-contention]
threshold = 0.25
close_ratio = 0.8
"""
"""With the fast path there is no loss left for a verdict. What the control plane of this machine costs is none."""
PLACES_ANYWAY = """
scheduler_name = "koord-scheduler"
[plugins.loadaware]
usage_thresholds = {}
[plugins.interference]
verdict_lost_seconds = 1000.0
"""
"""What else runs on the machine is no reason to leave the only node out."""
SLO = {
    "resource-threshold-config": json.dumps({"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 65}})
}
SCRAPES = """
global: {{scrape_interval: 1s}}
scrape_configs:
- job_name: pods
  file_sd_configs: [{{files: [{targets}]}}]
"""
"""Debian's Prometheus is built without the discovery of pods: the test writes what that would find."""


@pytest.fixture
def image(node: Node) -> str:
    """Tag of the image, which the node's runtime knows by another one too."""
    archive = os.environ.get("KOORD_IMAGE", "")
    if not archive:
        pytest.skip("KOORD_IMAGE is not set: make it with `make image`, dist/koord-*.oci.tar")
    done = node.runtime.ctr("images", "import", archive, timeout_seconds=300.0)
    assert done.returncode == 0, done.stderr
    (name, *_) = re.findall(rf"{REPOSITORY}:\S+", node.runtime.ctr("images", "list").stdout)
    done = node.runtime.ctr("images", "tag", "--force", name, f"{REPOSITORY}:{NEXT}")
    assert done.returncode == 0, done.stderr
    return name.rpartition(":")[2]


@pytest.fixture
def stock_scheduler(node: Node) -> Iterator[None]:
    """A kube-scheduler, which places what names no other."""
    binary = node.assets / "kube-scheduler"
    if not binary.exists():
        pytest.skip(f"KUBEBUILDER_ASSETS={node.assets} lacks kube-scheduler")
    (port,) = free_ports(1)
    flags = [f"--{each}={node.kubeconfig}" for each in ("kubeconfig", "authentication-kubeconfig")]
    flags += [f"--authorization-kubeconfig={node.kubeconfig}", "--leader-elect=false"]
    name = "kube-scheduler"
    node.programs.launch(name, [binary, *flags, f"--bind-address={HOST}", f"--secure-port={port}"])
    yield
    node.programs.stop(name)


@pytest.fixture
def targets(tmp_path: Path) -> Path:
    """File of what Prometheus scrapes."""
    return tmp_path / "targets.json"


@pytest.fixture
def prometheus(targets: Path, tmp_path: Path) -> Iterator[Prometheus]:
    """Debian's Prometheus."""
    if shutil.which("prometheus") is None:
        pytest.skip("no prometheus here: install the package")
    (port,) = free_ports(1)
    settings, log = tmp_path / "prometheus.yml", tmp_path / "prometheus.log"
    settings.write_text(SCRAPES.format(targets=targets))
    flags = [f"--config.file={settings}", f"--storage.tsdb.path={tmp_path}/tsdb"]
    with program(["prometheus", *flags, f"--web.listen-address=127.0.0.1:{port}"], log) as process:
        found = Prometheus(port)
        wait_for(found.ready, check=alive(process, log))
        yield found


def annotated(release: Release) -> list[Document]:
    """Pods that ask to be scraped, by their annotations, as targets of Prometheus."""
    found = []
    for pod in release.pods():
        metadata = pod["metadata"]
        if metadata.get("annotations", {}).get("prometheus.io/scrape") == "true":
            address = f"{pod['status']['podIP']}:{metadata['annotations']['prometheus.io/port']}"
            found.append({"targets": [address], "labels": {"job": metadata["labels"]["app.kubernetes.io/name"]}})
    return found


@pytest.fixture
def batch(node: Node, pods: Pods) -> Iterator[Callable[[], list[str]]]:
    """Begins the batch work, and returns the names of its pods when they run."""
    wanted, key = manifest("Deployment", pods), Key(pods.namespace, "batch")
    query = Query(pods.namespace, labels="app.kubernetes.io/name=batch")

    def begin() -> list[str]:
        node.client.create(DEPLOYMENTS, wanted)
        replicas = wanted["spec"]["replicas"]
        wait_for(lambda: len(node.client.list(PODS, query).items) == replicas, interval_seconds=0.2)
        names = [item.identity.key.name for item in node.client.list(PODS, query).items]
        for name in names:
            pods.await_phase(name, "Running")
        return names

    yield begin
    with contextlib.suppress(NotFound):
        node.client.delete(DEPLOYMENTS, key, DeleteOptions(propagation_policy="Foreground"))
    wait_for(lambda: node.client.find(DEPLOYMENTS, key) is None, interval_seconds=0.2)


def manifest(kind: str, pods: Pods) -> Document:
    """The object of a kind that the Vagrant machine gets, in the namespace of the test."""
    (found,) = (each for each in yaml.safe_load_all(PROTECTED.read_text()) if each["kind"] == kind)
    found["metadata"]["namespace"] = pods.namespace
    return dict(found)


class Journal:
    """What the agents of a node have held, read again and again: the last entry of each attribute."""

    def __init__(self, folder: Path) -> None:
        self.entries: dict[str, JournalEntry] = {}
        self._path = folder / "journal"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def live(self) -> dict[str, JournalEntry]:
        """Return what is held now."""
        return dict(decode(self._path.read_bytes()).live) if self._path.exists() else {}

    def actions_on(self, uids: list[str]) -> dict[str, JournalEntry]:
        """Return the actions in effect on these pods."""
        held = self.live().items()
        return {
            key: entry
            for key, entry in held
            if entry.kind is Kind.ACTION and any(pod_part(uid) in entry.target for uid in uids)
        }

    def stop(self) -> None:
        """End the reading."""
        self._stopping.set()
        self._thread.join(10)

    def _follow(self) -> None:
        while not self._stopping.wait(0.1):
            self.entries.update(self.live())


class Watch:
    """Looks at attributes until it is left, and counts how often each was as it had been found."""

    def __init__(self, entries: dict[str, JournalEntry]) -> None:
        self.looks = 0
        self.longest_gap_seconds = 0.0
        self.loose: dict[str, int] = {}
        self._entries = entries
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        self._thread.join(10)

    def _look(self) -> None:
        seen = time.monotonic()
        while not self._stopping.wait(0.02):
            self.looks += 1
            now = time.monotonic()
            self.longest_gap_seconds, seen = max(self.longest_gap_seconds, now - seen), now
            for key, entry in self._entries.items():
                if entry.attribute.read() == {entry.original}:
                    self.loose[key] = self.loose.get(key, 0) + 1


def values_of(node: Node, tag: str) -> dict[str, Any]:
    """All programs of the chart; a node of two CPUs has room for one of each."""
    values = chart.values_of(node, enforce=True)
    settings = str(values["koordlet"]["settings"]).replace("[enforcer]\n", '[enforcer]\nstrategies = ["*"]\n')
    own = os.environ.get("KOORD_IMAGE_SETTINGS")
    settings += Path(own).read_text() if own else SETTINGS
    values["koordlet"] |= {"settings": settings, "minReadySeconds": 3}
    one = {"enabled": True, "replicas": 1}
    scheduler = one | {"settings": PLACES_ANYWAY}
    descheduler = one | {"scheduler": {"url": f"http://{HOST}:1", "tlsSecret": ""}}
    return values | {"image": {"tag": tag}, "manager": one, "scheduler": scheduler, "descheduler": descheduler}


def kubectl_koord(node: Node, *arguments: str) -> str:
    command = [sys.executable, "-m", "kubectl_koord", f"--kubeconfig={node.kubeconfig}", *arguments]
    environment = os.environ | {"PATH": f"{node.assets}:{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TREE, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def status_of(pod: Document) -> dict[str, str]:
    """/proc/PID/status of a pod's program."""
    (pid, *_) = processes_of(container_id(pod))
    return dict(re.findall(r"^(\w+):\s+(.*)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE))


def cpu_seconds(pod: Document) -> float:
    """CPU time of a pod's container."""
    ticks = 0
    for pid in processes_of(container_id(pod)):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def share_of(pod: Document, seconds: float = 6.0) -> float:
    """CPUs that a pod gets, over some seconds."""
    before, begun = cpu_seconds(pod), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(pod) - before) / (time.monotonic() - begun)


def burstable_shares(node: Node) -> str:
    """CPU shares of the kubelet's burstable directory, by the kubelet's formula: the requests of its pods."""
    total = 0
    for item in node.client.list(PODS, Query(fields=f"spec.nodeName={node.name}")).items:
        if item.value["status"].get("qosClass") == "Burstable" and item.value["status"].get("phase") == "Running":
            for each in item.value["spec"]["containers"]:
                text = each.get("resources", {}).get("requests", {}).get("cpu", "0")
                total += int(text.removesuffix("m")) if text.endswith("m") else int(text) * 1000
    return f"{max(total * 1024 // 1000, 2)}\n"


def test_from_installation_to_removal(
    node: Node,
    pods: Pods,
    image: str,
    stock_scheduler: None,
    prometheus: Prometheus,
    targets: Path,
    batch: Callable[[], list[str]],
) -> None:
    begun = time.monotonic()

    def tell(what: str) -> None:
        print(f"{time.monotonic() - begun:6.1f} s  {what}", flush=True)

    def story() -> str:
        return chart.story(node)

    # A batch pod and a service that were there before, to be left as they were found.
    early = [
        pods.run("early-batch", BUSY, BATCH_RESOURCES, metadata=BATCH),
        pods.run("early", ["sleep", "3600"], SOME_CPU, metadata={"labels": {QOS_CLASS: "LS"}}),
    ]
    before = settings_below(ROOT)
    release, journal = Release(node), Journal(node.directory / "koord-state")
    values = values_of(node, image)
    try:
        release.install(values)
        node.client.create(
            CONFIG_MAPS, {"metadata": {"name": "slo-controller-config", "namespace": chart.NAMESPACE}, "data": SLO}
        )
        release.await_rollout("koordlet", *SERVERS)
        tell(f"installed; {len(release.pods())} pods are Ready")
        check_rights(release)
        targets.write_text(json.dumps(annotated(release)))
        web = placed_by_the_image(node, pods)
        tell("the service is placed by koord-scheduler")
        wait_for(lambda: suppress_is_told(node), 90, interval_seconds=0.5, check=story)
        tell("koord-manager has made the node's NodeSLO")
        alone = share_of(web)

        culprits = batch()
        uids = [uid_of(pods, name) for name in culprits]
        tell(f"{len(culprits)} best-effort pods begin; the service has had {alone:.2f} CPUs")
        verdict = wait_for(lambda: notes(pods, "web", "Interference"), 90, interval_seconds=0.3, check=story)
        tell(f"Event: {verdict[0]}")
        limited = wait_for(
            lambda: [each for each in culprits if notes(pods, each, "Limited")], 90, interval_seconds=0.3, check=story
        )
        tell(f"Event: {notes(pods, limited[0], 'Limited')[0]}")
        ended = wait_for(lambda: notes(pods, "web", "InterferenceEnded"), 120, interval_seconds=0.3, check=story)
        tell(f"Event: {ended[0]}")
        protected = share_of(web)
        tell(f"the service has {protected:.2f} CPUs beside {len(culprits)} culprits")
        assert protected > 0.8 * alone
        check_surfaces(node, pods, release, prometheus, limited[0])

        held = wait_for(lambda: journal.actions_on(uids), interval_seconds=0.2, check=story)
        with Watch(held) as watch:
            release.upgrade(values_of(node, NEXT))
            release.await_rollout("koordlet", *SERVERS)
            tell(f"upgraded; every pod runs {NEXT}")
            during = share_of(web)
        images = {each["spec"]["containers"][0]["image"].rpartition(":")[2] for each in release.pods()}
        assert images == {NEXT}
        targets.write_text(json.dumps(annotated(release)))
        loose = watch.loose or "never"
        looked = f"{watch.looks} times, at most {watch.longest_gap_seconds:.2f} s apart"
        tell(f"{len(held)} actions seen {looked}, loose: {loose}; the service has had {during:.2f} CPUs")
        assert watch.looks > 50
        assert watch.longest_gap_seconds < LONGEST_GAP_SECONDS * PATIENCE
        assert not watch.loose
        assert during > 0.8 * alone
        check_scraped(prometheus, annotated(release))

        said = release.restore_nodes(values_of(node, NEXT), 180)
        tell(f"uninstalling: {said.strip().splitlines()[-1]}")
        assert "every node has restored" in said
        assert not journal.live(), "nothing is held any more"
        assert "Traceback" not in chart.log_of(node)
        release.uninstall()
        tell("removed")
    finally:
        journal.stop()
        release.uninstall()
    check_originals(node, journal)
    check_the_rest(node, before, early)


def check_rights(release: Release) -> None:
    """The servers run as a user without rights; the agent has its capabilities and no more."""
    for name in SERVERS:
        (pod,) = release.pods(name)
        status = status_of(pod)
        assert status["Uid"].split() == [str(NOBODY)] * 4
        assert status["Gid"].split() == [str(NOBODY)] * 4
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[kind], 16) == 0, f"{name} {kind}"
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    (agent,) = release.pods("koordlet")
    wanted = ["BPF", "PERFMON", *chart.granted_here(["DAC_OVERRIDE", "SYS_RESOURCE"])]
    assert int(status_of(agent)["CapEff"], 16) == chart.capability_set(wanted)


def placed_by_the_image(node: Node, pods: Pods) -> Document:
    wanted = manifest("Pod", pods)
    wanted["spec"]["schedulerName"] = "koord-scheduler"
    node.client.create(PODS, wanted)
    web = pods.await_phase("web", "Running")
    assert web["spec"]["nodeName"] == node.name
    return web


def suppress_is_told(node: Node) -> bool:
    found = node.client.find(custom(NODE_SLO).of(dict), Key("", node.name))
    return bool(found and found["spec"]["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 65)


def notes(pods: Pods, name: str, reason: str) -> list[str]:
    """Return the Events of one reason on a pod."""
    listed = (item.value for item in pods.node.client.list(EVENTS, Query(pods.namespace)).items)
    return [each["note"] for each in listed if each["reason"] == reason and each["regarding"]["name"] == name]


def check_scraped(prometheus: Prometheus, found: list[Document]) -> None:
    """Prometheus has the metrics of every program, from the pods that run now and from no other."""
    wanted = {(each["labels"]["job"], address) for each in found for address in each["targets"]}
    assert {job for job, _ in wanted} == {"koordlet", *SERVERS}

    def up() -> set[tuple[str, str]]:
        return {(row["metric"]["job"], row["metric"]["instance"]) for row in prometheus.ask("up == 1")}

    wait_for(lambda: up() == wanted, interval_seconds=0.5, check=lambda: str(up()))


def check_surfaces(node: Node, pods: Pods, release: Release, prometheus: Prometheus, culprit: str) -> None:
    """Verdict and action in kubectl koord, in Prometheus, and on the page behind the API server's proxy."""
    (agent,) = release.pods("koordlet")
    assert node.name in kubectl_koord(node, "nodes")
    kubectl_koord(node, "verdicts")
    kubectl_koord(node, "why", f"{pods.namespace}/web")
    shown = kubectl_koord(node, "actions", node.name, "--log", "50")
    assert culprit in shown, shown
    print("\n".join(f"          kubectl koord actions: {line}" for line in shown.splitlines()[:4]))

    check_scraped(prometheus, annotated(release))
    asked = {
        "verdicts": "sum(koord_verdicts_total)",
        "actions": 'sum(koord_actions_total{outcome="set"})',
        "in effect": "sum(koord_settings_active)",
    }
    found = {name: float(prometheus.ask(expression)[0]["value"][1]) for name, expression in asked.items()}
    print(f"          Prometheus: {found}")
    assert all(found.values())

    proxied = f"/api/v1/namespaces/{chart.NAMESPACE}/pods/{agent['metadata']['name']}:9316/proxy/"
    page = node.client.send(Request("GET", proxied)).decode()
    assert f"{pods.namespace}/web" in page
    assert f"{pods.namespace}/{culprit}" in page
    print(f"          page by the API server's proxy: {len(page)} characters, with victim and culprit")


def check_originals(node: Node, journal: Journal) -> None:
    """Each file that the audit says was written holds what the journal says it held before."""
    audit = node.directory / "koord-log" / "audit.jsonl"
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    written = {line["file"] for line in lines if line["outcome"] == "set"}
    assert written
    unknown = written - journal.entries.keys()
    assert not unknown, "every write was journalled before"
    wrong, gone = {}, 0
    for key in written:
        entry = journal.entries[key]
        now = entry.attribute.read() if entry.attribute.identity() in ("", entry.identity) else None
        gone += not now
        if now and now != {entry.original}:
            wrong[key] = f"{sorted(now)}, found as {entry.original}"
    print(f"          {len(written)} files in the audit: {len(written) - gone} hold their original, {gone} are gone")
    assert not wrong
    assert len(written) > gone


def check_the_rest(node: Node, before: dict[str, str], early: list[Document]) -> None:
    """No setting of the pods that were there differs; what does of the directories is the kubelet's, by its formula."""

    def changed() -> dict[str, str]:
        after = settings_below(ROOT)
        return {path: after[path] for path in before.keys() & after.keys() if before[path] != after[path]}

    parts = [pod_part(each["metadata"]["uid"]) for each in early]
    assert [path for path in changed() if any(part in path for part in parts)] == []
    assert [path for path in before if any(part in path for part in parts)], "they were looked at"
    burstable = str(ROOT / "cpu" / TOP / "burstable" / "cpu.shares")
    # The kubelet writes it once a minute.
    wait_for(
        lambda: (
            set(changed()) <= {burstable} and changed().get(burstable, burstable_shares(node)) == burstable_shares(node)
        ),
        90,
        interval_seconds=1.0,
        check=lambda: f"{changed()}, by requests {burstable_shares(node)}",
    )
    print(f"          differs otherwise: {changed() or 'nothing'}: the sum of the pods' requests, by the kubelet")
