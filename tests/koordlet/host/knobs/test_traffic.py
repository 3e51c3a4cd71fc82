"""Hosts without traffic classes: each reason with its remedy; and the classifiers' instructions."""

import os
import struct
from pathlib import Path

import pytest

from api.intents import Knob
from api.plugin import Unsupported
from koordlet.config import EnforcerSettings
from koordlet.enforcer.lifecycle import open_knobs
from koordlet.host.files import HostTree
from koordlet.host.knobs.knobs import CgroupGone, Knobs
from koordlet.host.knobs.traffic import TrafficLink
from koordlet.host.traffic import ingress
from koordlet.host.traffic.classifiers import CgroupMatch, ClassidMatch, classifier_program, tap_program
from tests.koordlet.enforcer.hosts import FakeHost

VALUE = "rate=131072 prio=7"
LINK = TrafficLink("koord-none", 1_000_000_000)


def assignments(tree: HostTree, link: TrafficLink = LINK, target: str = "/pod") -> object:
    return Knobs(tree, traffic=link).assignments(Knob.NET_CLASS, target, VALUE)


def test_without_a_default_route_a_link_must_be_named(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.make("/pod")
    with pytest.raises(Unsupported, match="no default route") as unsupported:
        assignments(host.tree, TrafficLink())
    assert "network_interface" in unsupported.value.remedy


def test_v1_without_net_cls_cannot_tell_packets_apart(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, version=1)
    host.make("/pod")
    with pytest.raises(Unsupported, match="neither in a net_cls nor in the unified hierarchy") as unsupported:
        assignments(host.tree)
    assert "cgroup v2" in unsupported.value.remedy
    with pytest.raises(CgroupGone):
        assignments(host.tree, target="/gone")


def test_the_root_cgroup_has_no_class(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="root cgroup"):
        assignments(FakeHost(tmp_path).tree, target="/")


def instructions(program: bytes) -> list[tuple[int, int, int, int]]:
    return [struct.unpack_from("=BBhi", program, at) for at in range(0, len(program), 8)]


def test_a_classifier_names_its_cgroup_and_its_class() -> None:
    program = instructions(classifier_program(CgroupMatch(0x1_8000_0002, 3), 0x20))
    assert (0xB7, 2, 0, 3) in program
    assert [one[3] & 0xFFFFFFFF for one in program if one[0] in (0x18, 0)] == [0x8000_0002, 1]
    assert (0xB7, 1, 0, 0x20) in program
    assert program[-2:] == [(0xB7, 0, 0, 0), (0x95, 0, 0, 0)]


def test_a_classifier_names_its_mark() -> None:
    assert (0xB4, 1, 0, 0x4B64FFFE) in instructions(classifier_program(ClassidMatch(0x4B64FFFE), 0xFFFE))


def test_a_tap_asks_for_the_deepest_cgroup_first() -> None:
    program = instructions(tap_program({0x10: CgroupMatch(7, 1), 0x11: CgroupMatch(8, 3), 0x12: CgroupMatch(9, 2)}))
    assert [value for code, registers, _, value in program if (code, registers) == (0xB7, 2)] == [
        3,
        0x11,
        2,
        0x12,
        1,
        0x10,
    ]
    assert instructions(tap_program({}))[-2:] == [(0xB7, 0, 0, -1), (0x95, 0, 0, 0)]


def test_traffic_classes_must_be_asked_for(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.make("/pod")
    with pytest.raises(Unsupported, match="replace the queue of the link"):
        open_knobs(EnforcerSettings(), host.tree).assignments(Knob.NET_CLASS, "/pod", "rate=1000")
    asked = EnforcerSettings(network_classes=True, network_interface="no-such-link")
    with pytest.raises((Unsupported, OSError)) as refused:
        open_knobs(asked, host.tree).assignments(Knob.NET_CLASS, "/pod", "rate=1000")
    assert "replace the queue" not in str(refused.value)


def test_what_arrives_is_policed_only_where_that_is_asked_for(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.make("/pod")
    with pytest.raises(Unsupported, match="may not be dropped") as refused:
        open_knobs(EnforcerSettings(), host.tree).assignments(Knob.NET_INGRESS, "/pod", "125000")
    assert "network_policing" in refused.value.remedy
    with pytest.raises(ValueError, match="root cgroup"):
        open_knobs(EnforcerSettings(network_policing=True), host.tree).assignments(Knob.NET_INGRESS, "/", "125000")


def test_on_v1_processes_in_the_hosts_network_are_not_policed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = FakeHost(tmp_path, version=1)
    host.make("/pod")
    processes = host.root / "cg/cpu/pod/cgroup.procs"
    processes.write_text(f"{os.getpid()}\n")
    monkeypatch.setattr(ingress, "missing_support", lambda: None)
    knobs = open_knobs(EnforcerSettings(network_policing=True), host.tree)
    with pytest.raises(Unsupported, match="host's own network"):
        knobs.assignments(Knob.NET_INGRESS, "/pod", "125000")
    processes.write_text("")
    (assigned,) = knobs.assignments(Knob.NET_INGRESS, "/pod", "125000")
    assert assigned.attribute.key.endswith("/pod#net.ingress")
    with pytest.raises(CgroupGone):
        knobs.assignments(Knob.NET_INGRESS, "/gone", "125000")
