"""The whole agent on a host of plain files, with marked secrets wherever it gets any, and all that it writes."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from api.crds import NODE_METRIC
from cluster import EVENTS, NODES, custom
from cluster.twin import Twin
from koordlet.serving.client import AgentClient
from tests.koordlet.enforcer.hosts import FakeHost
from tests.waiting import alive, wait_for

MARK = "s3cr3t-mark"
"""Part of every secret."""
TOKEN = f"bearer-{MARK}"
ENVIRONMENT = f"environment-{MARK}"
SETTINGS = """
interval_seconds = 0.2
root = "{root}"
[probes]
backend = "none"
[metrics]
port = 0
koordinator_names = true
[cluster]
enabled = true
kubeconfig = "{kubeconfig}"
node_name = "worker-1"
first_report_seconds = 0
[detection]
baselines_file = "{state}/baselines.json"
save_seconds = 1
[enforcer]
enabled = true
guardian = false
strategies = ["*"]
state_dir = "{state}/journal"
audit_file = "{state}/log/audit.jsonl"
stop_file = "{state}/stop"
[strategies.node_slo.resourceUsedThresholdWithBE]
enable = true
[recording]
enabled = true
directory = "{state}/recordings"
segment_seconds = 1
[serving]
enabled = true
socket = "{run}/koordlet.sock"
[runtime_proxy]
enabled = true
socket = "{run}/hooks.sock"
directory = "{run}/hooks.d"
[prediction]
directory = "{state}/prediction"
[profiles]
enabled = true
directory = "{state}/profiles"
every_seconds = 0.2
segment_seconds = 0.5
"""
START = "import os, sys; os.umask(0); from koordlet.__main__ import main; sys.argv[0] = 'koordlet'; main()"
"""With the umask that protects nothing: what it writes must have its mode from the agent."""


@dataclass
class Said:
    """All that came out of a run."""

    folder: Path
    texts: dict[str, str] = field(default_factory=dict)
    sockets: dict[str, int] = field(default_factory=dict)
    """Modes of sockets while they were served."""


def kubeconfig(folder: Path, server: str, user: dict[str, Any] | None = None) -> Path:
    """Write one with a marked token; return its path."""
    path = folder / "kubeconfig"
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {"token": TOKEN}}],
    }
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    return path


def run_agent(folder: Path) -> Said:
    """Run the agent for some ticks, and return what it wrote, served and sent."""
    for name in ("state", "run"):
        (folder / name).mkdir(mode=0o755)
    host = FakeHost(folder / "host")
    for path in ("/kubepods", "/kubepods/besteffort", "/kubepods/besteffort/pod01234567-89ab-cdef-0123-456789abcdef"):
        host.make(path)
    said = Said(folder)
    with Twin() as twin:
        twin.serve(custom(NODE_METRIC))
        twin.load(NODES, [{"metadata": {"name": "worker-1"}}])
        config, log = folder / "koordlet.toml", folder / "log"
        places = {"root": host.root, "state": folder / "state", "run": folder / "run"}
        config.write_text(SETTINGS.format(kubeconfig=kubeconfig(folder, twin.url), **places))
        with _running(config, log) as process:
            wait_for(lambda: "metrics on" in log.read_text(), check=alive(process, log))
            port = re.search(r"metrics on http://127\.0\.0\.1:(\d+)/", log.read_text())
            assert port
            wait_for(lambda: len(list((folder / "state").glob("recordings/*"))) > 1, check=alive(process, log))
            for path in ("metrics", "healthz", ""):
                with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/{path}", timeout=30) as response:
                    said.texts[f"/{path}"] = response.read().decode()
            with AgentClient(folder / "run/koordlet.sock") as client:
                said.texts["socket"] = str(client.node())
            said.sockets = {path.name: path.stat().st_mode for path in (folder / "run").glob("*.sock")}
        said.texts["log"] = log.read_text()
        for kind in (EVENTS, custom(NODE_METRIC), NODES):
            said.texts[kind.plural] = json.dumps([*twin.objects(kind).values()], default=str)
    for path in sorted(path for top in ("state", "run") for path in (folder / top).rglob("*") if path.is_file()):
        said.texts[str(path.relative_to(folder))] = path.read_bytes().decode("latin-1")
    return said


@contextlib.contextmanager
def _running(config: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-c", START, "run", "-v", "--config", str(config)],
            stdout=stream,
            stderr=stream,
            env={**os.environ, "KOORD_SECRET": ENVIRONMENT, "AWS_SECRET_ACCESS_KEY": ENVIRONMENT},
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()
