import re
from pathlib import Path

import msgspec
import pytest

import koordlet.strategies.plugins
from api.settings import SettingsError, parse
from koordlet.strategies.plugins.cpu_suppress import CpuSuppress, CpuSuppressSettings
from koordlet.strategies.settings import configure, overridden, settings_of, unknown_keys
from koordlet.strategies.strategy import discover_strategies
from tests.koordlet.strategies.views import GIB, container, pod, view

DOCUMENT = Path(koordlet.strategies.plugins.__path__[0]).parents[2] / "docs/strategies.md"
SECTION = "resourceUsedThresholdWithBE"


def test_every_strategy_says_what_it_is_and_starts_with_valid_defaults() -> None:
    for name, kind in discover_strategies().items():
        strategy = kind()
        assert kind.__doc__, name
        assert strategy.name == name
        assert settings_of(kind.settings_type, kind.section, {}, "defaults") == strategy.settings


def test_defaults() -> None:
    """A changed default is to be seen in review: change `defaults.json` with it."""
    defaults = {
        name: {"gates": dict(kind.features), "settings": msgspec.to_builtins(kind.settings_type())}
        for name, kind in discover_strategies().items()
    }
    assert msgspec.json.decode(msgspec.json.encode(defaults)) == msgspec.json.decode(
        Path(__file__).with_name("defaults.json").read_bytes()
    )


def test_switched_off_by_default_all_strategies_want_nothing() -> None:
    one = pod("be", "BE", cores=3, memory_bytes=80 * GIB, cache_bytes=GIB, memory_pressure_ratio=0.0)
    seen = view(one, container(one), cores=7.0, memory_bytes=90 * GIB, evictions={"/gone": 0.0})
    for name, kind in discover_strategies().items():
        strategy = kind(features=dict.fromkeys(set(kind.features) - {"BECPUManager"}, True))
        assert strategy.decide(seen, 0.0) == [], name


def test_strategies_are_listed_in_their_document() -> None:
    document = DOCUMENT.read_text()
    for name, kind in discover_strategies().items():
        assert f"| `{name}` |" in document, f"{name} has no row in docs/strategies.md"
        assert all(f"`{gate}`" in document for gate in kind.features), name


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
