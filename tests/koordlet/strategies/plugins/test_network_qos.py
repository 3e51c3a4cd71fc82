from typing import Any

import pytest

from api.intents import Knob
from api.qos import QoSClass
from koordlet.strategies.network_rates import bytes_per_second
from koordlet.strategies.plugins.network_qos import NetworkQos, NetworkQosSettings
from koordlet.strategies.settings import settings_of
from tests.koordlet.strategies.views import BEST_EFFORT, ROOT, app, node, pod, settings, view

_BLOCK = {"enable": False, "ingressRequest": 0, "ingressLimit": 0, "egressRequest": 0, "egressLimit": 0}
DEFAULTS = {
    "gates": {"TCNetworkQoS": False},
    "settings": {
        "policies": {"netQOSPolicy": "tc"},
        "lsClass": {"networkQOS": _BLOCK},
        "beClass": {"networkQOS": _BLOCK},
        "systemClass": {"networkQOS": _BLOCK},
    },
}

GATE = {"TCNetworkQoS": True}
GIGABIT = node(network_bits_per_second=10**9)


@pytest.mark.parametrize(
    ("asked", "total", "rate"),
    [
        pytest.param("10M", 0, 1_250_000, id="bits-to-bytes"),
        pytest.param(30, 10**9, 37_500_000, id="percent"),
        pytest.param("1", 0, 1, id="at-least-one"),
    ],
)
def test_bytes_per_second(asked: int | str, total: int, rate: int) -> None:
    assert bytes_per_second(asked, total) == rate


@pytest.mark.parametrize(
    ("asked", "words"), [(30, "totalNetworkBandwidth"), ("fast", "like 10M"), ("0", "leave it out")]
)
def test_what_is_no_bandwidth(asked: int | str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bytes_per_second(asked, 0)


def of(**classes: Any) -> NetworkQos:
    blocks = {name: {"networkQOS": {"enable": True, **block}} for name, block in classes.items()}
    return NetworkQos(settings_of(NetworkQosSettings, NetworkQos.section, {NetworkQos.section: blocks}, "file"), GATE)


def test_classes() -> None:
    strategy = of(lsClass={}, beClass={"egressRequest": 10, "egressLimit": "200M"}, systemClass={})
    wanted = settings(strategy.decide(view(app("sshd", "SYSTEM"), on=GIGABIT), 0.0))
    assert wanted == {
        (ROOT, Knob.NET_CLASS): "rate=37500000 ceil=125000000 prio=2",
        (BEST_EFFORT, Knob.NET_CLASS): "rate=12500000 ceil=25000000 prio=3",
        ("/sshd", Knob.NET_CLASS): "rate=50000000 ceil=125000000 prio=1",
    }


def test_what_best_effort_work_has_where_nothing_is_stated() -> None:
    wanted = settings(of(beClass={}).decide(view(on=GIGABIT), 0.0))
    assert wanted == {(BEST_EFFORT, Knob.NET_CLASS): "rate=37500000 ceil=125000000 prio=3"}


def test_a_limit_below_the_request_holds_and_is_told() -> None:
    strategy = of(beClass={"egressRequest": 50, "egressLimit": 20})
    wanted = settings(strategy.decide(view(on=GIGABIT), 0.0))
    assert wanted[BEST_EFFORT, Knob.NET_CLASS] == "rate=25000000 ceil=25000000 prio=3"
    assert BEST_EFFORT in strategy.problems


def test_without_a_total_a_percent_is_told() -> None:
    strategy = of(beClass={})
    assert strategy.decide(view(), 0.0) == []
    assert "totalNetworkBandwidth" in strategy.problems[BEST_EFFORT]


def test_a_pods_own_limit() -> None:
    one = pod(
        "a", QoSClass.BE, annotations={"koordinator.sh/networkQOS": '{"egressLimit": "20M", "ingressLimit": "1M"}'}
    )
    strategy = NetworkQos(features=GATE)
    wanted = settings(strategy.decide(view(one), 0.0))
    assert wanted == {
        (one.path, Knob.NET_CLASS): "rate=2500000 ceil=2500000 prio=3",
        (one.path, Knob.NET_INGRESS): "125000",
    }
    assert not strategy.problems


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        pytest.param("8000000", "rate=1000000 ceil=1000000 prio=2", id="number"),
        pytest.param('"8M"', "rate=1000000 ceil=1000000 prio=2", id="quantity"),
        pytest.param('"much"', None, id="no-quantity"),
        pytest.param("0", None, id="none"),
    ],
)
def test_bits_per_second_of_a_pod(limit: str, value: str | None) -> None:
    one = pod("a", QoSClass.LS, annotations={"koordinator.sh/networkQOS": f'{{"egressLimit": {limit}}}'})
    assert settings(NetworkQos(features=GATE).decide(view(one), 0.0)).get((one.path, Knob.NET_CLASS)) == value


def test_a_pod_on_its_way_out_is_left_alone() -> None:
    one = pod("a", QoSClass.LS, annotations={"koordinator.sh/networkQOS": '{"egressLimit": "1M"}'}, active=False)
    assert NetworkQos(features=GATE).decide(view(one), 0.0) == []


def test_another_mechanism_is_left_to_it() -> None:
    config = settings_of(
        NetworkQosSettings,
        NetworkQos.section,
        {NetworkQos.section: {"policies": {"netQOSPolicy": "terway-qos"}, "beClass": {"networkQOS": {"enable": True}}}},
        "file",
    )
    assert NetworkQos(config, GATE).decide(view(on=GIGABIT), 0.0) == []


def test_a_class_may_be_limited_in_what_arrives() -> None:
    strategy = of(lsClass={"ingressLimit": 100}, beClass={"ingressLimit": 20}, systemClass={"ingressLimit": "1M"})
    wanted = settings(strategy.decide(view(app("sshd", "SYSTEM"), on=GIGABIT), 0.0))
    arriving = {path: value for (path, knob), value in wanted.items() if knob is Knob.NET_INGRESS}
    assert arriving == {BEST_EFFORT: "25000000"}, "the whole link needs no limit, the system gets none"


def test_nothing_that_arrives_is_limited_unless_asked_for_and_no_share_of_it_is_promised() -> None:
    strategy = of(lsClass={}, beClass={"ingressRequest": 30})
    wanted = settings(strategy.decide(view(on=GIGABIT), 0.0))
    assert Knob.NET_INGRESS not in {knob for _path, knob in wanted}
    assert "not promised" in strategy.problems[f"{BEST_EFFORT} ingressRequest"]


def test_a_percent_of_what_arrives_needs_a_total() -> None:
    strategy = of(beClass={"ingressLimit": 20, "egressRequest": "1M", "egressLimit": "2M"})
    assert strategy.decide(view(), 0.0) == []
    assert "totalNetworkBandwidth" in strategy.problems[BEST_EFFORT]
