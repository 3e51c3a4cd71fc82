"""Plugins that run, their order, and the refusal of wrong settings."""

from typing import Any

import msgspec
import pytest

from api.settings import SettingsError
from scheduler.engine import Engine
from scheduler.framework import Plugin
from scheduler.profile import SchedulerSettings, available, config_type
from tests.schedobjects import engine


def test_every_plugin_has_a_name_of_its_own_and_settings_that_refuse_unknown_keys() -> None:
    kinds = available()
    names = [kind.name for kind in kinds.values()]
    assert len(set(names)) == len(names)
    assert all(names)
    for kind in kinds.values():
        config = config_type(kind)
        assert issubclass(config, msgspec.Struct)
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"no_such_key": 1}, config)


def test_the_default_profile_runs_filters_in_the_stock_order_and_binds_last() -> None:
    names = list(Engine().plugins)
    order = ["PrioritySort", "NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodeResourcesFit"]
    order += ["PodTopologySpread", "InterPodAffinity", "DefaultPreemption", "DefaultBinder"]
    assert [name for name in names if name in order] == order
    assert "ScarceResourceAvoidance" not in names


def test_a_plugin_can_be_switched_off_and_weighed() -> None:
    made = engine([], plugins={"imagelocality": {"enabled": False}, "tainttoleration": {"weight": 7}})
    assert "ImageLocality" not in made.plugins
    weights = {entry.plugin.name: entry.weight for entry in made.profiles.first}
    assert weights["TaintToleration"] == 7
    assert weights["NodeAffinity"] == 2


@pytest.mark.parametrize(
    ("plugins", "named"),
    [
        pytest.param({"nosuch": {}}, "nosuch", id="unknown-plugin"),
        pytest.param({"noderesourcesfit": {"colour": 1}}, "colour", id="unknown-key"),
        pytest.param({"noderesourcesfit": {"resources": {"cpu": "x"}}}, "resources", id="wrong-type"),
    ],
)
def test_wrong_settings_are_refused_by_name(plugins: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        Engine(SchedulerSettings(plugins=plugins), source="s.toml")


def test_a_kind_that_overrides_nothing_costs_nothing() -> None:
    class Idle(Plugin[tuple[()]]):
        name = "Idle"

    made = engine([], kinds={"idle": Idle})
    assert made.snapshot.pod_observers == []
    assert made.snapshot.node_observers == []
