"""Choice of how throttling is traced on a kernel. Needs no kernel."""

from typing import cast

import pytest

from api.plugin import Unsupported
from probes.bpf_object import BpfObject
from probes.probe import Kernel, ProbeLimits
from probes.throttle import Throttle


class FakeBtf:
    def __init__(self, *fields: str) -> None:
        self._fields = fields

    def has_field(self, struct_name: str, field: str) -> bool:
        return struct_name == "cfs_rq" and field in self._fields

    def field_type(self, _struct_name: str, _field: str) -> str:
        return "struct cfs_rq * *"

    def has_function(self, _name: str) -> bool:
        return True


class FakeKernel:
    def __init__(self, *fields: str) -> None:
        self.btf = FakeBtf(*fields)
        self.refusals: dict[str, str] = {}


class FakeObject:
    def map(self, *_arguments: object) -> None:
        return None


def refuse(_kernel: Kernel, _limits: ProbeLimits) -> BpfObject:
    raise Unsupported("functions cannot be traced here")


def accept(_kernel: Kernel, _limits: ProbeLimits) -> BpfObject:
    return cast("BpfObject", FakeObject())


def opened(kernel: FakeKernel) -> Throttle:
    return Throttle.open(cast("Kernel", kernel), ProbeLimits())


def test_without_bandwidth_control_nothing_is_measured() -> None:
    with pytest.raises(Unsupported, match="bandwidth"):
        opened(FakeKernel())


def test_traced_functions_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Throttle, "_open_traced", staticmethod(accept))
    kernel = FakeKernel("throttled_clock", "throttled_clock_self_time")
    assert opened(kernel).way == "traced"
    assert not kernel.refusals


def test_refused_tracing_falls_back_to_the_queues_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Throttle, "_open_traced", staticmethod(refuse))
    monkeypatch.setattr(Throttle, "_open_switched", staticmethod(accept))
    kernel = FakeKernel("throttled_clock", "throttled_clock_self_time")
    assert opened(kernel).way == "switched"
    assert "cannot be traced" in kernel.refusals["fentry"]


def test_refused_tracing_without_that_clock_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Throttle, "_open_traced", staticmethod(refuse))
    with pytest.raises(Unsupported, match="cannot be traced"):
        opened(FakeKernel("throttled_clock"))
