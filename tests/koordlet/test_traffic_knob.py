"""Where traffic classes cannot be: each reason, with what to do about it; and the classifiers' instructions."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from api.intents import Knob
from api.plugin import Unsupported
from koordlet.host.knobs import CgroupGone, Knobs
from koordlet.host.traffic_knob import TrafficLink
from koordlet.host.traffic_programs import of_cgroup, of_mark
from koordlet.host.tree import HostTree
from tests.koordlet.enforcing.hosts import FakeHost

VALUE = "rate=131072 prio=7"
LINK = TrafficLink("koord-none", 1_000_000_000)


def parts(tree: HostTree, link: TrafficLink = LINK, target: str = "/pod") -> object:
    return Knobs(tree, traffic=link).parts(Knob.NET_CLASS, target, VALUE)


def test_without_a_default_route_a_link_must_be_named(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.make("/pod")
    with pytest.raises(Unsupported, match="no default route") as lack:
        parts(host.tree, TrafficLink())
    assert "network_interface" in lack.value.remedy


def test_v1_without_net_cls_cannot_tell_packets_apart(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, version=1)
    host.make("/pod")
    with pytest.raises(Unsupported, match="neither in a net_cls nor in the unified hierarchy") as lack:
        parts(host.tree)
    assert "cgroup v2" in lack.value.remedy
    with pytest.raises(CgroupGone):
        parts(host.tree, target="/gone")


def test_everybody_is_no_class(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="root cgroup"):
        parts(FakeHost(tmp_path).tree, target="/")


def instructions(program: bytes) -> list[tuple[int, int, int, int]]:
    return [struct.unpack_from("=BBhi", program, at) for at in range(0, len(program), 8)]


def test_a_classifier_names_its_cgroup() -> None:
    program = instructions(of_cgroup(0x1_8000_0002, 3))
    assert program[0] == (0xB7, 2, 0, 3)
    assert [one[3] & 0xFFFFFFFF for one in program[2:4]] == [0x8000_0002, 1]
    assert program[-2:] == [(0xB7, 0, 0, -1), (0x95, 0, 0, 0)]


def test_a_classifier_names_its_mark() -> None:
    program = instructions(of_mark(0x4B64FFFE))
    assert (0xB4, 1, 0, 0x4B64FFFE) in program
    assert program[0] == (0x85, 0, 0, 17)
