"""Present values of knobs: the same whether a file is opened for each read or kept."""

import os
from pathlib import Path

import pytest

from api.intents import Knob
from koordlet.host.knobs.current import CurrentKnobs, current
from koordlet.host.knobs.knobs import CgroupGone, Knobs
from tests.koordlet.enforcer.hosts import NO_QUOTA, FakeHost, put_quota

PATH = "/pod"


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path / "host", request.param)
    made.make(PATH)
    return made


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_kept_files_say_what_opened_ones_say(host: FakeHost) -> None:
    knobs = Knobs(host.tree)
    kept = CurrentKnobs(knobs)
    for written, value in (("20000", "20000 100000"), (NO_QUOTA[host.version], "max 100000")):
        put_quota(host, written)
        assert kept.read(Knob.CPU_MAX, PATH) == current(knobs, Knob.CPU_MAX, PATH) == value
    assert kept.read(Knob.CPUSET_CPUS, PATH) == current(knobs, Knob.CPUSET_CPUS, PATH)
    with pytest.raises(ValueError, match="not read"):
        kept.read(Knob.CPU_WEIGHT, PATH)


def test_files_of_other_cgroups_are_closed(host: FakeHost) -> None:
    kept, before = CurrentKnobs(Knobs(host.tree)), descriptors()
    kept.read(Knob.CPU_MAX, PATH)
    assert descriptors() > before
    kept.keep(["/other"])
    assert descriptors() == before
    kept.read(Knob.CPU_MAX, PATH)
    del kept
    assert descriptors() == before


def test_a_file_that_comes_later_is_found(host: FakeHost) -> None:
    kept = CurrentKnobs(Knobs(host.tree))
    name = "cpuset.cpus"
    text = host.text(PATH, name)
    host.file(PATH, name).unlink()
    with pytest.raises(CgroupGone):
        kept.read(Knob.CPUSET_CPUS, PATH)
    host.file(PATH, name).write_text("0-3\n")
    assert kept.read(Knob.CPUSET_CPUS, PATH) == "0-3" != text
