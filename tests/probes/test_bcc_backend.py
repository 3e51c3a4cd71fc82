"""Choice of the backend of a probe, and the reasons given when none can run."""

import os
from pathlib import Path

import pytest

from api.plugin import Unsupported
from probes.bcc import backend, loader
from probes.bcc.cpu import BccCpu
from probes.bcc.quotas import under_quota
from probes.cpu import Cpu
from probes.irq import Irq
from probes.probe import Kernel, Probe, ProbeLimits


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[type[Probe]]:
    """Classes whose `open` was asked, in order; none touches the kernel."""
    asked: list[type[Probe]] = []
    for kind in (Cpu, BccCpu, Irq):
        monkeypatch.setattr(kind, "open", classmethod(lambda cls, _kernel, _limits: asked.append(cls)))
    return asked


def without_btf(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path / "vmlinux")


class KernelWithBtf(Kernel):
    btf = None  # type: ignore[assignment]


def test_auto_is_core_where_there_is_btf(opened: list[type[Probe]]) -> None:
    _, source = backend.open_probe(Cpu, KernelWithBtf(), ProbeLimits(), "auto")
    assert opened == [Cpu]
    assert "CO-RE" in source


def test_auto_is_bcc_without_btf(opened: list[type[Probe]], tmp_path: Path) -> None:
    _, source = backend.open_probe(Cpu, without_btf(tmp_path), ProbeLimits(), "auto")
    assert opened == [BccCpu]
    assert "compiled by BCC: the kernel offers no BTF" in source


def test_forced_bcc_does_not_ask_for_btf(opened: list[type[Probe]]) -> None:
    _, source = backend.open_probe(Cpu, KernelWithBtf(), ProbeLimits(), "bcc")
    assert opened == [BccCpu]
    assert "as set" in source


def test_forced_core_never_compiles(opened: list[type[Probe]], tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="no BTF"):
        backend.open_probe(Cpu, without_btf(tmp_path), ProbeLimits(), "core")
    assert not opened


def test_probe_that_bcc_does_not_compile_says_so(opened: list[type[Probe]], tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="BCC compiles only cpu"):
        backend.open_probe(Irq, KernelWithBtf(), ProbeLimits(), "bcc")
    with pytest.raises(Unsupported, match="no BTF"):
        backend.open_probe(Irq, without_btf(tmp_path), ProbeLimits(), "auto")
    assert not opened


def test_both_reasons_are_given_where_neither_can(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(loader, "PACKAGES", tmp_path)
    with pytest.raises(Unsupported, match=r"no BTF .*BCC is not installed") as refusal:
        backend.open_probe(Cpu, without_btf(tmp_path), ProbeLimits(), "auto")
    assert refusal.value.remedy == "install python3-bpfcc"


def test_refused_compilation_is_a_reason_and_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "require", lambda: None)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(Unsupported, match=r"^BCC cannot load memory\.c: .+"):
        loader.load(loader.Source("memory", {"no_such_program": "no_such_tracepoint"}, (), {}))
    # Threads that earlier tests left may close files of theirs meanwhile.
    assert len(set(os.listdir("/proc/self/fd")) - before) == 0


def test_quota_reaches_all_below_it(tmp_path: Path) -> None:
    (tmp_path / "limited" / "worker").mkdir(parents=True)
    (tmp_path / "free" / "old").mkdir(parents=True)
    (tmp_path / "limited" / "cpu.max").write_text("20000 100000\n")
    (tmp_path / "limited" / "worker" / "cpu.max").write_text("max 100000\n")
    (tmp_path / "free" / "cpu.max").write_text("max 100000\n")
    (tmp_path / "free" / "old" / "cpu.cfs_quota_us").write_text("-1\n")
    found = under_quota(tmp_path)
    assert found == {path.stat().st_ino for path in (tmp_path / "limited", tmp_path / "limited" / "worker")}
    (tmp_path / "free" / "old" / "cpu.cfs_quota_us").write_text("5000\n")
    assert under_quota(tmp_path) - found == {(tmp_path / "free" / "old").stat().st_ino}
