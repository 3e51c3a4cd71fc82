import os
import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

import koordlet.strategies.plugins
from api.protocol import ANNOTATION_RESOURCE_STATUS
from api.settings import SettingsError, parse
from koordlet.strategies import strategy as framework
from koordlet.strategies.page import rewritten, table
from koordlet.strategies.plugins.cpu_suppress import CpuSuppress, CpuSuppressSettings
from koordlet.strategies.settings import configure, overridden, settings_of, unknown_keys
from koordlet.strategies.strategy import discover_strategies
from tests.koordlet.strategies.views import BEST_EFFORT, GIB, container, pod, view

DOCUMENT = Path(koordlet.strategies.plugins.__path__[0]).parents[2] / "docs/strategies.md"
SECTION = "resourceUsedThresholdWithBE"


def test_every_strategy_says_what_it_is_and_starts_with_valid_defaults() -> None:
    for name, kind in discover_strategies().items():
        strategy = kind()
        assert kind.__doc__, name
        assert strategy.name == name
        assert settings_of(kind.settings_type, kind.section, {}, "defaults") == strategy.settings


@pytest.mark.parametrize("name", discover_strategies())
def test_defaults_are_stated_in_the_strategys_own_test(name: str) -> None:
    """A changed default is to be seen in review, so it is stated twice."""
    kind = discover_strategies()[name]
    found = {"gates": dict(kind.features), "settings": msgspec.to_builtins(kind.settings_type())}
    actual = msgspec.json.decode(msgspec.json.encode(found))
    test = f"tests.koordlet.strategies.plugins.test_{name}"
    assert find_spec(test) is not None, f"add {test.replace('.', '/')}.py"
    stated = getattr(import_module(test), "DEFAULTS", None)
    assert stated is not None, f"add to {test.replace('.', '/')}.py: DEFAULTS = {actual}"
    assert actual == stated, f"change {test.replace('.', '/')}.py if this is meant: DEFAULTS = {actual}"


def test_switched_off_by_default_all_strategies_want_nothing() -> None:
    one = pod("be", "BE", cores=3, memory_bytes=80 * GIB, cache_bytes=GIB, memory_pressure_ratio=0.0)
    seen = view(one, container(one), cores=7.0, memory_bytes=90 * GIB, evictions={"/gone": 0.0})
    for name, kind in discover_strategies().items():
        strategy = kind(features=dict.fromkeys(set(kind.features) - {"BECPUManager"}, True))
        assert strategy.decide(seen, 0.0) == [], name


def test_the_table_in_the_document_is_what_the_docstrings_say() -> None:
    document = DOCUMENT.read_text()
    assert all(f"| `{name}` |" in table() for name in discover_strategies())
    assert document == rewritten(document), "run: python -m koordlet.strategies.page"


def test_a_docstring_without_a_line_of_the_table_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuSuppress, "__doc__", "CPUs or quota.\n\nReads: usage\nIntents: `cpu.max`\nDefault: off")
    with pytest.raises(ValueError, match=r"plugins/cpu_suppress\.py: .* CpuSuppress lacks a line 'Source: \.\.\.'"):
        table()


@pytest.mark.parametrize(
    "path", [pytest.param("extensions.half_cpu", id="by-name"), pytest.param("extensions.half", id="by-section")]
)
def test_a_strategy_from_an_entry_point_has_its_name_and_its_extension(tmp_path: Path, path: str) -> None:
    """The example of the framework's own page, installed as another distribution would be."""
    example = textwrap.dedent(re.findall(r"\n\n((?:    .*\n|\n)+)", framework.__doc__ or "")[0])
    assert "class HalfCpu(Strategy" in example
    if path != "extensions.half_cpu":
        example = example.replace("    settings_type", f"    section = {path!r}\n    settings_type")
    (tmp_path / "half_cpu_of_others.py").write_text(example)
    info = tmp_path / "half_cpu-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: half-cpu\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[koord.strategies]\nhalf_cpu = half_cpu_of_others:HalfCpu\n")
    key = path.removeprefix("extensions.")
    program = f"""
from koordlet.config import StrategiesSettings
from koordlet.control.strategy_runner import open_strategies
from tests.koordlet.strategies.views import pod, view

runner = open_strategies(StrategiesSettings(node_slo={{"extensions": {{{key!r}: {{"enable": True}}}}}}), "test")
(intent,) = runner.decide(view(pod("a", "BE"), pod("b", "LS")), 0.0)
print(intent.strategy, intent.target, intent.knob, intent.value)
try:
    open_strategies(StrategiesSettings(node_slo={{"extensions": {{{key!r}: {{"enabled": True}}}}}}), "test")
except Exception as error:
    print(error)
"""
    search = os.pathsep.join([str(tmp_path), str(DOCUMENT.parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": search},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    wanted, refused = done.stdout.splitlines()
    assert wanted == f"half_cpu {BEST_EFFORT}/poda cpu.max 50000 100000"
    assert f"{path}.enabled" in refused


def test_settings_lie_over_the_defaults_and_null_is_absent() -> None:
    spec = {SECTION: {"enable": True, "cpuSuppressThresholdPercent": None, "memoryEvictThresholdPercent": 80}}
    settings = settings_of(CpuSuppressSettings, SECTION, spec, "file")
    assert settings == CpuSuppressSettings(enable=True, threshold_percent=65)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        pytest.param(
            {"cpuSuppressThresholdPercent": 165}, ["cpuSuppressThresholdPercent", "100", "default"], id="high"
        ),
        pytest.param({"cpuSuppressThresholdPercent": 0.65}, ["whole number such as 65"], id="fraction"),
        pytest.param({"cpuSuppressPolicy": "quota"}, ["cpuSuppressPolicy", "quota"], id="choice"),
        pytest.param({"enable": "yes"}, ["enable", "bool"], id="type"),
        pytest.param([], [SECTION, "table"], id="no-table"),
    ],
)
def test_a_refusal_names_file_key_and_remedy(table: object, words: list[str]) -> None:
    with pytest.raises(SettingsError) as refused:
        settings_of(CpuSuppressSettings, SECTION, {SECTION: table or [1]}, "node.toml")
    assert all(word in str(refused.value) for word in ["node.toml", *words]), str(refused.value)


def test_refused_settings_leave_the_former_ones_and_the_other_strategies_alone() -> None:
    strategies = {name: kind() for name, kind in discover_strategies().items()}
    assert configure(strategies, {SECTION: {"enable": True, "cpuSuppressThresholdPercent": 50}}, "first") == []
    refused = configure(strategies, {SECTION: {"enable": False, "cpuSuppressThresholdPercent": 500}}, "second")
    assert [error.location for error in refused] == ["cpuSuppressThresholdPercent"]
    suppress = strategies["cpu_suppress"]
    assert isinstance(suppress, CpuSuppress)
    assert suppress.settings == CpuSuppressSettings(enable=True, threshold_percent=50)


def test_unknown_keys_are_found_at_every_depth() -> None:
    spec = {
        "cpuBurst": {},
        SECTION: {"cpuSuppressTresholdPercent": 1},
        "resourceQOSStrategy": {"beClass": {"blkioQOS": {"blocks": [{"name": "a"}, {"label": "b"}]}}},
        "extensions": {
            "someoneElses": {"x": 1},
            "resourcepool": {"enable": True},
            "watermarks": {"actions": {"calm": {"throttle": {"cpuThrottle": {"minRatio": 1}}}}},
        },
    }
    assert unknown_keys(spec) == [
        "cpuBurst",
        f"{SECTION}.cpuSuppressTresholdPercent",
        "resourceQOSStrategy.beClass.blkioQOS.blocks.label",
        "extensions.resourcepool",
        "extensions.watermarks.actions.calm.throttle.cpuThrottle.minRatio",
    ]


def test_a_pod_may_override_single_fields() -> None:
    settings = CpuSuppressSettings(enable=True, threshold_percent=50)
    assert overridden(settings, '{"cpuSuppressMinPercent": 5}', "pod") == CpuSuppressSettings(
        enable=True, threshold_percent=50, min_percent=5
    )
    with pytest.raises(SettingsError, match="not a JSON object"):
        overridden(settings, "[1]", "pod")


def test_the_example_in_the_document_is_accepted() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    strategies = {name: kind() for name, kind in discover_strategies().items()}
    assert configure(strategies, parse(example, "example.toml"), "example.toml") == []
    changed = {name for name, strategy in strategies.items() if strategy.settings != type(strategy)().settings}
    assert changed == {
        "colocation_budget",
        "core_sched",
        "cpu_burst",
        "cpu_evict",
        "cpu_suppress",
        "group_identity",
        "memory_evict",
        "memory_headroom",
        "watermarks",
    }


def test_an_annotation_nested_too_deep_is_refused_like_any_other() -> None:
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    with pytest.raises(SettingsError, match="not a JSON object"):
        overridden(CpuSuppressSettings(), deep, "pod shop/web")
    assert replace(pod("web"), annotations={ANNOTATION_RESOURCE_STATUS: deep}).own_cpus == frozenset()
