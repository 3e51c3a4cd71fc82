import pytest

from api.intents import Knob
from api.qos import QoSClass
from api.settings import SettingsError
from koordlet.strategies.plugins.blkio_qos import BlkioQos, BlkioQosSettings
from koordlet.strategies.settings import settings_of
from tests.koordlet.strategies.views import BEST_EFFORT, node, pod, settings, view

DEFAULTS = {
    "gates": {"BlkIOReconcile": False},
    "settings": {
        "beClass": {"blkioQOS": {"enable": False, "blocks": []}},
        "cgroupRoot": {"blkioQOS": {"enable": False, "blocks": []}},
    },
}

DISKS = {"/dev/vda": "253:0", "vg0": "252:1"}
GATE = {"BlkIOReconcile": True}


def of(name: str, **block: object) -> BlkioQos:
    """The strategy with the blocks of one class."""
    spec = {"resourceQOSStrategy": {name: {"blkioQOS": {"enable": True, **block}}}}
    return BlkioQos(settings_of(BlkioQosSettings, BlkioQos.section, spec, "file"), GATE)


def test_best_effort_limits_and_weights_by_device() -> None:
    strategy = of(
        "beClass",
        blocks=[
            {"name": "/dev/vda", "ioCfg": {"readBPS": 1048576, "writeIOPS": 100, "ioWeightPercent": 60}},
            {"name": "vg0", "type": "volumegroup", "ioCfg": {"readIOPS": 0, "writeBPS": 2048}},
            {"name": "/dev/sdz"},
        ],
    )
    assert settings(strategy.decide(view(on=node(disks=DISKS)), 0.0)) == {
        (BEST_EFFORT, Knob.IO_MAX): (
            "253:0 rbps=1048576 wbps=max riops=max wiops=100\n252:1 rbps=max wbps=2048 riops=max wiops=max"
        ),
        (BEST_EFFORT, Knob.IO_WEIGHT): "253:0 60",
    }
    assert "correct blocks.name" in strategy.problems["/dev/sdz"]


def test_the_whole_disk() -> None:
    model = {"modelReadBPS": 1, "modelWriteBPS": 2, "modelReadSeqIOPS": 3, "modelWriteSeqIOPS": 4}
    model |= {"modelReadRandIOPS": 5, "modelWriteRandIOPS": 6}
    strategy = of(
        "cgroupRoot",
        blocks=[
            {"name": "/dev/vda", "ioCfg": {"readLatency": 5000}},
            {"name": "vg0", "ioCfg": {"enableUserModel": True, **model}},
        ],
    )
    assert settings(strategy.decide(view(on=node(disks=DISKS)), 0.0)) == {
        ("/", Knob.IO_COST_QOS): (
            "253:0 enable=1 ctrl=user rpct=95 rlat=5000 wpct=95 wlat=3000\n"
            "252:1 enable=1 ctrl=user rpct=95 rlat=3000 wpct=95 wlat=3000"
        ),
        ("/", Knob.IO_COST_MODEL): (
            "253:0 ctrl=auto\n252:1 ctrl=user model=linear rbps=1 rseqiops=3 rrandiops=5 wbps=2 wseqiops=4 wrandiops=6"
        ),
    }


@pytest.mark.parametrize(("qos", "wanted"), [("LS", "8:16 rbps=max wbps=max riops=7 wiops=max"), ("LSR", None)])
def test_a_pods_volume(qos: str, wanted: str | None) -> None:
    text = '{"blocks": [{"name": "data", "type": "podvolume", "ioCfg": {"readIOPS": 7}}]}'
    one = pod("a", QoSClass(qos), annotations={"koordinator.sh/blkioQOS": text}, volumes={"data": "8:16"})
    assert settings(BlkioQos(features=GATE).decide(view(one), 0.0)).get((one.path, Knob.IO_MAX)) == wanted


@pytest.mark.parametrize(
    ("device", "words"),
    [
        pytest.param({"ioWeightPercent": 0}, "ioWeightPercent", id="weight"),
        pytest.param({"readBPS": -1}, "readBPS", id="negative"),
        pytest.param({"enableUserModel": True, "modelReadBPS": 1}, "all six", id="half-a-model"),
    ],
)
def test_refused_settings(device: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        of("beClass", blocks=[{"name": "/dev/vda", "ioCfg": device}])
