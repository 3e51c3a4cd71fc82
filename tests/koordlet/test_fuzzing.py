"""Every parser on the node that reads what others write, fed with malformed and hostile text.

Texts are grown from valid ones: cut, doubled, spliced, with numbers beyond all ranges, deep nesting, surrogates and
bytes that are no text. A parser answers or raises what its docstring says, nothing else. KOORD_FUZZ_EXAMPLES sets the
examples of each parser (150 by default, some seconds together).
"""

import ast
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from api.cgroup_path import path_text, raw_path
from api.cpuset import parse_cpuset
from api.kube.annotations import AnnotationError, decode_annotation
from api.kube.numa import ResourceStatus
from api.kube.resources import QuantityError, parse_quantity, parse_resources
from api.kube.selectors import SelectorError, parse_label_selector
from api.settings import SettingsError, parse
from api.stacks import from_json as stacks_from_json
from api.verdicts import from_json
from detector.baselines.file import decode as decode_baselines
from detector.explain.times import parse_time
from detector.models.format import decode_models
from detector.recording.format import decode_header, decode_stacks
from detector.rules import load_rules
from koordlet.collectors.cpustat import parse_cpu_stat, parse_cpu_stat_of_cores, parse_cpu_stat_v2, parse_usage
from koordlet.collectors.hostwide import parse_proc_stat
from koordlet.collectors.iostat import parse_blkio, parse_io_stat
from koordlet.collectors.kernelwork import parse_thread
from koordlet.collectors.memstat import parse_bytes, parse_limit, parse_memory_stat
from koordlet.collectors.numa import parse_numa_stat
from koordlet.control.strategy_runner import StrategyRunner
from koordlet.devices.device_object import read_spec
from koordlet.devices.xpu_files import parse_xpu_infos
from koordlet.enforcer.journal_format import decode as decode_journal
from koordlet.evidence.perf_maps import PerfMaps
from koordlet.host.attribute_formats import device_items, schemata_items
from koordlet.host.cgroups.hierarchies import find_mounts
from koordlet.host.containers import container_facts
from koordlet.host.files import HostTree
from koordlet.host.pressure import parse_pressure
from koordlet.host.process_files import parse_maps
from koordlet.host.traffic.classes import parse_traffic
from koordlet.identity.cgroup_names import name_cgroup, unescape_unit
from koordlet.kubelet.cgroup_paths import path_of_spec
from koordlet.kubelet.configuration import ConfigurationError, of_configz, of_file
from koordlet.kubelet.pod_documents import NotAPodList, pods_of_list
from koordlet.kubelet.pod_facts import describe
from koordlet.prediction.checkpoints import decode as decode_checkpoint
from koordlet.runtime_proxy.registration import RegistrationInvalid, parse_registration
from koordlet.strategies.cpuquota import parse_quota
from koordlet.strategies.eviction_order import by_eviction_order, evictable
from koordlet.strategies.strategy import make_strategies
from koordlet.strategies.view import Group, GroupKind
from koordlet.topology.kubelet_cpus import StateError, exclusive_cpus
from tests.hostile_text import damaged
from tests.koordlet.strategies.test_together import all_on
from tests.koordlet.strategies.views import node, view

EXAMPLES = int(os.environ.get("KOORD_FUZZ_EXAMPLES", "150"))

POD = {
    "apiVersion": "v1",
    "items": [
        {
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "annotations": {"a": "b"}, "labels": {"c": "d"}},
            "spec": {
                "priority": 1,
                "containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}],
            },
            "status": {"qosClass": "BestEffort", "containerStatuses": [{"name": "c", "containerID": "docker://ab"}]},
        }
    ],
}
SLO = {
    "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cpuset"},
    "resourceQOSStrategy": {"beClass": {"resctrlQOS": {"enable": True, "mbaPercent": 30}}},
    "systemStrategy": {"totalNetworkBandwidth": "10G"},
    "extensions": {"coldMemory": {"enable": True}},
}
SEEDS: tuple[str, ...] = (
    "0-3,8",
    "1500m",
    "1Gi",
    "nr_periods 10\nnr_throttled 4\nthrottled_time 77\nusage_usec 5\nthrottled_usec 1\n",
    "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
    "8:0 rbytes=1 wbytes=2 rios=3 wios=4\n",
    "8:0 Read 1\n8:0 Write 2\nTotal 3\n",
    "cache 1\nrss 2\ntotal_cache 3\ntotal_rss 4\nfile 5\nanon 6\n",
    "L3:0=7ff;1=7ff\nMB:0=100;1=100\n",
    "rate=131072 ceil=131072 prio=7",
    "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod01234567_89ab_cdef_0123_456789abcdef.slice",
    "/system.slice/docker-" + "a" * 64 + ".scope",
    "/user.slice/a\\\\x2db.service",
    "[strategies]\nnode_slo_file = 'x'\n",
    "kind: KubeletConfiguration\ncgroupDriver: systemd\ncpuManagerPolicy: static\n",
    json.dumps(POD),
    json.dumps({"spec": SLO}),
    json.dumps({"cpuset": "0-3", "numaNodeResources": [{"node": 0, "resources": {"cpu": "4"}}]}),
    json.dumps(
        {"remote-endpoint": "/run/hook.sock", "failure-policy": "Ignore", "runtime-hooks": ["PreRunPodSandbox"]}
    ),
    json.dumps({"kubeletconfig": {"cgroupDriver": "cgroupfs", "kubeReserved": {"cpu": "100m"}}}),
    json.dumps([{"vendor": "v", "model": "m", "uuid": "u", "minor": "0", "resources": {"x": "1"}}]),
    json.dumps({"Name": "/web", "Config": {"Labels": {"io.kubernetes.pod.name": "p"}, "Image": "i"}}),
    '00000000 {"n":1,"r":{"type":"begin"}}\n',
    "55d0c0de0000-55d0c0df0000 r-xp 00001000 fd:01 131 /usr/bin/perl (deleted)\n",
    "7f00 40 LazyCompile:~main /app/index.js:1\n7f40 0 tail\n",
    "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n",
    "anon N0=4096 N1=0\nfile N0=8192 N1=4096\nhierarchical_anon=3 N0=1\n",
    "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n31 25 0:27 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
    json.dumps({"policyName": "static", "defaultCpuSet": "0-1", "entries": {"u": {"c": "2-3"}}, "checksum": 1}),
    json.dumps({"spec": {"devices": [{"type": "gpu", "minor": 0, "id": "x", "resources": {"a": "1"}}]}}),
    "tier in (web, db), !canary, zone=a",
    "+1h30m5.5s",
    "2026-03-01T14:03:05Z",
    "[rules.cpu]\nsymptom = 'run_queue'\nthreshold = 0.1\n",
)
texts = partial(damaged, SEEDS)


def raw(text: str) -> bytes:
    return text.encode(errors="surrogateescape") if not _has_other_surrogates(text) else text.encode(errors="replace")


def name(text: str) -> str:
    """A cgroup's name as Python reads it from the file system."""
    return os.fsdecode(raw(text).replace(b"\0", b""))


def _has_other_surrogates(text: str) -> bool:
    return any(0xD800 <= ord(one) < 0xDC80 or 0xDCFF < ord(one) <= 0xDFFF for one in text)


def group(text: str) -> Group:
    keys = (
        "scheduling.koordinator.sh/resource-status",
        "koordinator.sh/cpuQOS",
        "koordinator.sh/memoryQOS",
        "koordinator.sh/blkioQOS",
        "koordinator.sh/networkQOS",
        "koordinator.sh/cpuBurst",
        "koordinator.sh/oom-score-adj",
        "node.koordinator.sh/resctrl",
        "koordinator.sh/eviction-policy",
        "koordinator.sh/eviction-priority",
        "koordinator.sh/priority",
    )
    said = dict.fromkeys(keys, text)
    return Group(path="/p", kind=GroupKind.POD, name="n/p", uid="u", annotations=said, labels=said)


def decide(text: str) -> None:
    seen = view(group(text), on=node(4), cores=4)
    for strategy in all_on().values():
        strategy.decide(seen, 0.0)


def follow(text: str) -> None:
    try:
        document = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return
    spec = document.get("spec") if isinstance(document, dict) else None
    if isinstance(spec, dict):
        StrategyRunner(make_strategies()).follow(spec, "NodeSLO")


def pods(text: str) -> None:
    for pod in pods_of_list(raw(text)).pods:
        describe(pod)


def device_spec(text: str) -> None:
    try:
        document = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return
    read_spec(document if isinstance(document, dict) else None)


def resources(text: str) -> None:
    parse_resources({"cpu": text, text[:60]: "1"})


KERNEL_FILE = (ValueError, KeyError, IndexError)
"""What the collector counts as a torn file."""
PARSERS: Mapping[str, tuple[Callable[[str], Any], tuple[type[Exception], ...]]] = {
    "cpuset": (parse_cpuset, (ValueError,)),
    "quantity": (parse_quantity, (QuantityError,)),
    "annotation": (lambda text: decode_annotation(text, ResourceStatus), (AnnotationError,)),
    "annotations-of-a-pod": (decide, ()),
    "eviction-order": (lambda text: (evictable(group(text), "f"), by_eviction_order([group(text)], lambda _: 0.0)), ()),
    "cgroup-name": (lambda text: name_cgroup("/" + path_text(name(text))), ()),
    "delegated-name": (lambda text: name_cgroup("/" + path_text(name(text)), delegated=True), ()),
    "unit-name": (unescape_unit, ()),
    "path-text": (lambda text: raw_path(path_text(name(text))), ()),
    "raw-path": (raw_path, (ValueError,)),
    "cgroups-path": (path_of_spec, ()),
    "cpu.stat-v1": (lambda text: parse_cpu_stat(raw(text)), KERNEL_FILE),
    "cpu.stat-v2": (lambda text: parse_cpu_stat_v2(raw(text)), KERNEL_FILE),
    "cpu.stat-cores": (lambda text: parse_cpu_stat_of_cores(raw(text)), KERNEL_FILE),
    "cpuacct.usage": (lambda text: parse_usage(raw(text)), KERNEL_FILE),
    "io.stat": (lambda text: parse_io_stat(raw(text)), KERNEL_FILE),
    "blkio": (lambda text: parse_blkio(raw(text)), KERNEL_FILE),
    "memory.stat": (lambda text: parse_memory_stat(raw(text)), KERNEL_FILE),
    "memory.limit": (lambda text: parse_limit(raw(text)), KERNEL_FILE),
    "memory.bytes": (lambda text: parse_bytes(raw(text)), KERNEL_FILE),
    "pressure": (lambda text: parse_pressure(raw(text)), KERNEL_FILE),
    "schemata": (schemata_items, (ValueError,)),
    "device-items": (device_items, (ValueError,)),
    "traffic": (lambda text: parse_traffic(text, 10**9), (ValueError,)),
    "settings": (lambda text: parse(text, "x.toml"), (SettingsError,)),
    "settings-yaml": (lambda text: parse(text, "x.yaml"), (SettingsError,)),
    "node-slo": (follow, ()),
    "pod-list": (pods, (NotAPodList,)),
    "configz": (lambda text: of_configz(raw(text)), (ConfigurationError,)),
    "kubelet-file": (lambda text: of_file(text, "config.yaml"), (ConfigurationError,)),
    "hook-server": (lambda text: parse_registration("/f", raw(text)), (RegistrationInvalid,)),
    "devices": (lambda text: parse_xpu_infos(raw(text), "f"), ()),
    "journal": (lambda text: decode_journal(raw(text)), ()),
    "checkpoint": (lambda text: decode_checkpoint(raw(text), "m"), (ValueError, RecursionError)),
    "baselines": (lambda text: decode_baselines(raw(text), 0.0), (ValueError,)),
    "models": (lambda text: decode_models(raw(text)), (ValueError,)),
    "recording": (lambda text: decode_header(raw(text)), (ValueError,)),
    "verdict": (from_json, (ValueError,)),
    "stacks": (lambda text: stacks_from_json(raw(text)), (ValueError, RecursionError)),
    "recorded-stacks": (lambda text: decode_stacks(raw(text)), (ValueError,)),
    "rules": (lambda text: load_rules(text, "rules.toml", frozenset({"run_queue"})), (SettingsError,)),
    "process-maps": (lambda text: parse_maps(raw(text)), ()),
    "perf-map": (lambda text: PerfMaps().names(io.BytesIO(raw(text)), [0x7F00, 0x7F41, 2**64 - 1]), ()),
    "proc-stat": (parse_proc_stat, (*KERNEL_FILE, OverflowError)),
    "thread-stat": (lambda text: parse_thread(raw(text)), (ValueError, IndexError)),
    "numa-stat": (lambda text: parse_numa_stat(raw(text)), KERNEL_FILE),
    "cpu.max": (parse_quota, (ValueError,)),
    "cpu-manager-state": (exclusive_cpus, (StateError,)),
    "device-object": (device_spec, ()),
    "label-selector": (parse_label_selector, (SelectorError,)),
    "time": (lambda text: parse_time(text, 0, 10**9), (ValueError,)),
    "resources": (resources, (QuantityError,)),
}


def parsers() -> Iterator[str]:
    """Functions of the node's packages that are called parsers."""
    root = Path(__file__).parents[2]
    for package in ("api", "detector", "koordlet"):
        for path in sorted((root / package).rglob("*.py")):
            for each in ast.parse(path.read_text()).body:
                if isinstance(each, ast.FunctionDef) and each.name.startswith(("parse_", "decode_")):
                    yield each.name


def test_every_parser_of_the_node_is_fed_here() -> None:
    fed = Path(__file__).read_text()
    missing = [name for name in parsers() if f"{name}(" not in fed and f"({name}" not in fed]
    assert not missing, f"feed {missing} with hostile text in PARSERS"


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_raises_what_it_says_and_nothing_else(name: str) -> None:
    parser, known = PARSERS[name]

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(texts())
    def run(text: str) -> None:
        try:
            parser(text)
        except known:
            return

    run()


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(texts())
def test_files_of_a_runtime_give_a_name_or_none(tmp_path: Path, text: str) -> None:
    container = "a" * 64
    file = tmp_path / f"var/lib/docker/containers/{container}/config.v2.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(raw(text))
    facts = container_facts(HostTree(tmp_path), container)
    assert isinstance(facts.full_name, str)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(texts())
def test_mounts_are_found_or_not(tmp_path: Path, text: str) -> None:
    file = tmp_path / "proc/self/mountinfo"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(raw(text).replace(b"\0", b""))
    v1, _unified = find_mounts(HostTree(tmp_path))
    assert all(isinstance(name, str) for name in v1)
