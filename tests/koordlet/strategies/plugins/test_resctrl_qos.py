from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.intents import Knob
from api.qos import QoSClass
from api.settings import SettingsError
from koordlet.strategies.plugins.resctrl_qos import ResctrlClass, ResctrlQos, ResctrlQosSettings
from koordlet.strategies.resctrl_masks import Domains, ResctrlBlock, bandwidth, cache_mask, schemata
from koordlet.strategies.settings import settings_of
from koordlet.strategies.view import CacheControl
from tests.koordlet.strategies.views import container, node, pod, settings, view

_BLOCK = {"enable": False, "catRangeStartPercent": 0, "catRangeEndPercent": 100, "mbaPercent": 100}
DEFAULTS = {
    "gates": {"RdtResctrl": True, "Resctrl": False},
    "settings": {
        "lsrClass": {"resctrlQOS": _BLOCK},
        "lsClass": {"resctrlQOS": _BLOCK},
        "beClass": {"resctrlQOS": _BLOCK | {"catRangeEndPercent": 30}},
        "systemClass": {"resctrlQOS": _BLOCK},
    },
}

INTEL = CacheControl(mask=0x7FF, domains=(0, 1), bandwidth_domains=(0, 1))


@pytest.mark.parametrize(
    ("whole", "start", "end", "mask"),
    [
        pytest.param(0x3FF, 10, 80, 0xFE, id="ten-ways"),
        pytest.param(0x7FF, 10, 50, 0x3C, id="eleven-ways"),
        pytest.param(0x7FF, 0, 30, 0xF, id="from-zero"),
        pytest.param(0x7FF, 0, 100, 0x7FF, id="all"),
        pytest.param(0x7FF, 50, 52, 0x40, id="empty-range-is-widened"),
        pytest.param(0x7FF, 99, 100, 0x400, id="at-the-end"),
    ],
)
def test_mask(whole: int, start: int, end: int, mask: int) -> None:
    assert cache_mask(CacheControl(mask=whole), start, end) == mask


@given(st.integers(1, 32), st.integers(0, 99), st.integers(1, 100), st.integers(0, 4))
def test_a_mask_is_contiguous_within_the_cache_and_large_enough(ways: int, start: int, more: int, least: int) -> None:
    whole = (1 << ways) - 1
    mask = cache_mask(CacheControl(mask=whole, least_ways=least), start, min(start + more, 100))
    assert mask
    assert mask & ~whole == 0
    lowest = mask & -mask
    assert mask & (mask + lowest) == 0, "contiguous"
    assert mask.bit_count() >= min(max(least, 1), ways)


AMD = CacheControl(mask=0xFFFF, bandwidth_domains=(0,), bandwidth_full=160)


@pytest.mark.parametrize(
    ("control", "percent", "value"),
    [
        pytest.param(INTEL, 30, 30, id="in-steps"),
        pytest.param(INTEL, 31, 40, id="rounded-up"),
        pytest.param(INTEL, 1, 10, id="floor"),
        pytest.param(INTEL, 100, 100, id="all"),
        pytest.param(replace(INTEL, bandwidth_step=7), 99, 100, id="not-above-all"),
        pytest.param(AMD, 100, 2048, id="amd-unlimited"),
        pytest.param(AMD, 50, 80, id="amd"),
        pytest.param(AMD, 33, 52, id="amd-truncated"),
    ],
)
def test_bandwidth(control: CacheControl, percent: int, value: int) -> None:
    assert bandwidth(control, percent) == value


BE = pod("be", QoSClass.BE)
CORE = pod("core", QoSClass.LSR)
ON = ResctrlQosSettings(be_class=ResctrlClass(resctrl_qos=ResctrlBlock(enable=True, end_percent=30, mba_percent=20)))


def test_classes_and_their_members() -> None:
    web = pod("web", QoSClass.LS)
    seen = view(BE, container(BE), CORE, container(CORE), web, container(web), on=node(cache=INTEL))
    wanted = settings(ResctrlQos(ON).decide(seen, 0.0))
    assert wanted == {
        ("BE", Knob.RESCTRL_SCHEMATA): "L3:0=f;1=f\nMB:0=20;1=20",
        (f"{BE.path}/main", Knob.RESCTRL_GROUP): "BE",
    }


def test_protected_pods_stay_where_everything_is() -> None:
    everybody = ResctrlClass(resctrl_qos=ResctrlBlock(enable=True, end_percent=50))
    config = ResctrlQosSettings(lsr_class=everybody, ls_class=everybody)
    seen = view(CORE, container(CORE), on=node(cache=INTEL))
    assert {target for target, _ in settings(ResctrlQos(config).decide(seen, 0.0))} == {"LS"}


@pytest.mark.parametrize(
    ("annotation", "lines"),
    [
        pytest.param('{"llc": {"schemata": {"range": [20, 80]}}}', "L3:0=1f8;1=1f8\nMB:0=100;1=100", id="range"),
        pytest.param('{"llc": {"schemata": {"percent": 30}}}', "L3:0=f;1=f\nMB:0=100;1=100", id="percent"),
        pytest.param(
            '{"llc": {"schemataPerCache": [{"cacheID": 1, "percent": 30}]}, "mb": {"schemata": {"percent": 25}}}',
            "L3:0=7ff;1=f\nMB:0=30;1=30",
            id="one-cache",
        ),
        pytest.param("{}", None, id="nothing"),
    ],
)
def test_a_pod_of_its_own(annotation: str, lines: str | None) -> None:
    own = pod("own", QoSClass.BE, annotations={"node.koordinator.sh/resctrl": annotation})
    strategy = ResctrlQos(ON, {"RdtResctrl": False, "Resctrl": True})
    wanted = settings(strategy.decide(view(own, container(own), on=node(cache=INTEL)), 0.0))
    assert wanted.get(("koordlet-own", Knob.RESCTRL_SCHEMATA)) == lines
    assert wanted.get((f"{own.path}/main", Knob.RESCTRL_GROUP)) == (lines and "koordlet-own")


def test_a_pod_is_in_one_group() -> None:
    own = pod("own", QoSClass.BE, annotations={"node.koordinator.sh/resctrl": '{"mb": {"schemata": {"percent": 25}}}'})
    seen = view(own, container(own), on=node(cache=INTEL))
    settings(ResctrlQos(ON, {"Resctrl": True}).decide(seen, 0.0))
    assert settings(ResctrlQos(ON).decide(seen, 0.0))[f"{own.path}/main", Knob.RESCTRL_GROUP] == "BE"


@pytest.mark.parametrize(
    "control",
    [
        pytest.param(None, id="no-cache-control"),
        pytest.param(CacheControl(mask=0b1011), id="mask-with-a-hole"),
        pytest.param(CacheControl(mask=0), id="empty-mask"),
    ],
)
def test_nothing_where_the_hardware_cannot(control: CacheControl | None) -> None:
    strategy = ResctrlQos(ON)
    assert strategy.decide(view(BE, container(BE), on=node(cache=control)), 0.0) == []
    assert ("resctrl" in strategy.problems) is (control is not None)


def test_an_empty_range_is_refused() -> None:
    spec = {"resourceQOSStrategy": {"beClass": {"resctrlQOS": {"catRangeStartPercent": 30}}}}
    with pytest.raises(SettingsError, match="catRangeEndPercent 30 must be above catRangeStartPercent 30"):
        settings_of(ResctrlQosSettings, "resourceQOSStrategy", spec, "file")


def test_amd_counts_bandwidth_in_its_own_unit() -> None:
    amd = CacheControl(mask=0xFFFF, domains=(0,), bandwidth_domains=(0,), bandwidth_full=160)
    assert [bandwidth(amd, percent) for percent in (100, 50, 1)] == [2048, 80, 1]


def test_a_host_that_divides_bandwidth_alone_gets_no_cache_line() -> None:
    control = CacheControl(mask=0, domains=(), bandwidth_domains=(0,))
    assert schemata(Domains({}, {0: 50}), control) == "MB:0=50"
