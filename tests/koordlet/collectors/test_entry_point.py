"""A collector of another distribution: found by its entry point, its columns in frames and metrics."""

import os
import subprocess
import sys
from pathlib import Path

from tests.koordlet.enforcer.hosts import FakeHost

MODULE = '''
from collections.abc import Sequence

from api.frame import CgroupInfo
from api.metrics import Metric, MetricKind, Unit
from koordlet.collectors import FileCollector, Host, PerCgroupFile
from koordlet.host.files import KeptFiles


class Tasks(FileCollector):
    """pids.current of each cgroup."""

    metrics = (Metric("{column}", "cgroup_tasks", MetricKind.GAUGE, Unit.COUNT, "Tasks in the cgroup"),)
    source = "tasks"

    @classmethod
    def open(cls, host: Host) -> "Tasks":
        file = KeptFiles(host.hierarchies.cpu, "pids.current")
        return cls([PerCgroupFile(file, ("{column}",), lambda content: (int(content),))])
'''

PROGRAM = """
import sys

from prometheus_client import CollectorRegistry, generate_latest

from koordlet.commands.startup import open_agent
from koordlet.config import AgentSettings, MetricsSettings, ProbeSettings
from koordlet.metrics.cgroups import CgroupMetrics
from koordlet.tick import Tick

agent = open_agent(AgentSettings(root=sys.argv[1], probes=ProbeSettings(backend="none")))
exposition = CgroupMetrics(MetricsSettings(), agent.info_of, {})
registry = CollectorRegistry()
registry.register(exposition)
for _ in range(2):
    agent.collect(everything=True)
exposition.update(Tick.of(agent.store.window()), capabilities=agent.capabilities())
agent.close()
print(generate_latest(registry).decode())
"""


def run(tmp_path: Path, column: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    host = FakeHost(tmp_path / "host")
    host.make("/web")
    host.file("/web", "pids.current").write_text("17\n")
    site = tmp_path / "site"
    metadata = site / "taskcounts-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: taskcounts\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[koord.collectors]\ntasks = taskcounts:Tasks\n")
    (site / "taskcounts.py").write_text(MODULE.format(column=column))
    command = [sys.executable, *(arguments or ("-c", PROGRAM, str(host.root)))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(Path.cwd())])}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_its_columns_are_exposed(tmp_path: Path) -> None:
    done = run(tmp_path, "tasks.current")
    assert done.returncode == 0, done.stderr
    assert 'koord_cgroup_tasks{cgroup="/web",name="web",qos=""} 17.0' in done.stdout
    assert 'koord_capability{name="tasks"} 1.0' in done.stdout


def test_a_clash_ends_the_start_with_both_names(tmp_path: Path) -> None:
    done = run(tmp_path, "cpustat.usage_ns")
    assert done.returncode == 2
    assert "collector tasks: column 'cpustat.usage_ns' is declared by api/metrics.py" in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_refuses_a_clash_without_a_traceback(tmp_path: Path) -> None:
    done = run(tmp_path, "cpustat.usage_ns", "-m", "koordlet", "doctor")
    assert done.returncode == 2, done.stderr
    assert "error: collector tasks: column 'cpustat.usage_ns'" in done.stderr
    assert "Traceback" not in done.stderr
