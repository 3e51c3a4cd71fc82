"""Files of cgroups that stay open: a cgroup that was removed and made anew is read anew."""

import os

import pytest

from api.intents import Knob
from koordlet.host.files import HostTree
from koordlet.host.knobs.current import CurrentKnobs
from koordlet.host.knobs.knobs import CgroupGone, Knobs
from tests.cgroups import CgroupTree

pytestmark = [pytest.mark.kernel, pytest.mark.beside]


def test_a_cgroup_that_was_made_anew_is_read_anew() -> None:
    if os.geteuid() != 0:
        pytest.skip("making cgroups needs root")
    tree, kept = CgroupTree.detect(), CurrentKnobs(Knobs(HostTree()))
    with tree.make_cgroup("again") as outer:
        first = outer.make_cgroup("first")
        first.set_cpu_quota(20_000)
        assert kept.read(Knob.CPU_MAX, first.path) == "20000 100000"
        first.remove()
        with outer.make_cgroup("first") as second:
            second.set_cpu_quota(30_000)
            assert kept.read(Knob.CPU_MAX, second.path) == "30000 100000"
        with pytest.raises(CgroupGone):
            kept.read(Knob.CPU_MAX, second.path)
