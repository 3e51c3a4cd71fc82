"""Events that found all of their programs running already, from the kernel's count for each program."""

from typing import Self, cast

import pytest

from api.frame import Reading
from koordlet.agent.probe_set import ProbeSet
from probes.bpf_object import LoadedBpf
from probes.btf import Btf
from probes.libbpf import ProgramStats
from probes.probe import BpfProbe, Kernel, again, in_turn


class Loaded:
    """Programs with a count of missed events each."""

    def __init__(self, **missed: int) -> None:
        self._missed = missed

    def stats(self) -> tuple[ProgramStats, ...]:
        return tuple(ProgramStats(name, 0, 0, count) for name, count in self._missed.items())


class Seeing(BpfProbe):
    """A reading that has losses and no columns."""

    name = "seeing"

    @classmethod
    def open(cls, *_: object) -> Self:
        raise NotImplementedError

    def read(self) -> Reading:
        return Reading(lost={"seeing.stamp": 5})


def seeing(**missed: int) -> Seeing:
    return Seeing(cast(LoadedBpf, Loaded(**missed)))


@pytest.mark.parametrize(
    ("counts", "missed"),
    [
        pytest.param({"on_begin": 0}, {}, id="nothing missed"),
        pytest.param({"on_begin": 7}, {"on_begin": 7}, id="no second program"),
        pytest.param({"on_begin": 7, "on_begin_again": 0}, {}, id="the second program saw all"),
        pytest.param({"on_begin": 7, "on_begin_again": 2}, {"on_begin": 2}, id="the second program missed too"),
        pytest.param({"on_begin": 0, "on_begin_again": 9}, {}, id="the first program saw all"),
    ],
)
def test_missed_is_what_neither_program_saw(counts: dict[str, int], missed: dict[str, int]) -> None:
    assert seeing(**counts).missed() == missed


def test_agent_counts_missed_events_as_lost() -> None:
    probes = ProbeSet({"seeing": seeing(on_begin=3), "blind": seeing()}, {}, {}, {})
    readings, failures = probes.read()
    assert failures == {}
    assert readings["seeing"].lost == {"seeing.stamp": 5, "seeing.on_begin": 3}
    assert readings["blind"].lost == {"seeing.stamp": 5}


def test_second_programs_follow_their_first() -> None:
    assert in_turn("on_end", "on_begin") == ("on_end", "on_end_again", "on_begin", "on_begin_again")
    assert again("on_end", "on_begin") == ("on_end_again", "on_begin_again")


class Types:
    """A kernel's BTF as far as the guard of tracepoints goes."""

    def __init__(self, *, srcu: bool, fast: bool) -> None:
        self._srcu, self._fast = srcu, fast

    def variables(self, section: str) -> dict[str, tuple[int, int]]:
        return {"tracepoint_srcu_srcu_data": (0, 448)} if self._srcu and section == ".data..percpu" else {}

    def struct_size(self, name: str) -> int | None:
        return 16 if self._fast and name == "srcu_ctr" else None


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        pytest.param(Types(srcu=True, fast=False), False, id="before 6.13"),
        pytest.param(Types(srcu=False, fast=False), False, id="6.13 and 6.14"),
        pytest.param(Types(srcu=False, fast=True), False, id="6.15 to 6.19"),
        pytest.param(Types(srcu=True, fast=True), True, id="since 7.0"),
    ],
)
def test_kernels_that_switch_away_from_programs_on_tracepoints(types: Types, expected: bool) -> None:
    kernel = Kernel()
    kernel.__dict__["btf"] = cast(Btf, types)
    assert kernel.preempts_tracepoints is expected
