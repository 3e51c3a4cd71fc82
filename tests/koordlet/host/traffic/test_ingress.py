"""The program that polices what arrives, as instructions; tests/kernel/koordlet/test_ingress.py runs it."""

import os
import struct
from pathlib import Path

import pytest

from koordlet.config import AgentSettings, EnforcerSettings
from koordlet.control.control_loop import open_control_loop
from koordlet.host.attributes import IngressPolicer
from koordlet.host.traffic import ingress
from koordlet.host.traffic.ingress import MAX, CgroupPolicer, policer_program
from tests.koordlet.enforcer.hosts import FakeHost

_JUMPS = {0x15, 0x2D, 0x3D}
_EXIT = 0x95


@pytest.mark.parametrize("rate", [1000, 125_000, 12_500_000_000])
def test_every_jump_ends_at_an_instruction_and_every_way_at_an_exit(rate: int) -> None:
    program = policer_program(rate, 7, 8)
    codes = [struct.unpack_from("=BBhi", program, at) for at in range(0, len(program), 8)]
    second_halves = {place + 1 for place, one in enumerate(codes) if one[0] == 0x18}
    ends = {place + 1 + one[2] for place, one in enumerate(codes) if one[0] in _JUMPS}
    assert all(0 < end < len(codes) for end in ends)
    assert not ends & second_halves
    assert codes[-1][0] == codes[-3][0] == _EXIT
    assert {codes[end][3] for end in ends if codes[end][0] == 0xB7} == {0, 1}


def test_to_a_process_that_set_none_there_is_none(tmp_path: Path) -> None:
    assert CgroupPolicer(tmp_path).read() == {MAX}
    assert CgroupPolicer(tmp_path / "gone").read() is None
    attribute = IngressPolicer(str(tmp_path))
    attribute.write(MAX, (), attribute.identity() or "")
    assert attribute.key.endswith("#net.ingress")


def test_the_descriptors_of_a_cgroup_that_is_gone_are_closed(tmp_path: Path) -> None:
    directory = tmp_path / "pod"
    directory.mkdir()
    link, lease = os.pipe()
    ingress._policers[str(directory)] = ingress._Policer(directory.stat().st_ino, 1000, link, lease)
    attribute = IngressPolicer(str(directory))
    assert attribute.identity() == str(directory.stat().st_ino)
    os.fstat(link)
    directory.rmdir()
    assert attribute.identity() is None
    for fd in (link, lease):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


@pytest.mark.parametrize(("interval", "lease"), [(1.0, 30.0), (20.0, 120.0)])
def test_the_lease_outlasts_the_time_between_two_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interval: float, lease: float
) -> None:
    monkeypatch.setattr(ingress.LEASE, "seconds", 0.0)
    settings = AgentSettings(interval_seconds=interval, enforcer=EnforcerSettings(dry_run=True, audit_file=""))
    open_control_loop(settings, FakeHost(tmp_path).tree).close()
    assert ingress.LEASE.seconds == lease
