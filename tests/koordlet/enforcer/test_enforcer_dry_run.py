"""Dry runs: the same decisions without a write, and what an enforcing run left."""

import errno
import json
import os
from typing import Any

import pytest

from api.intents import Knob
from api.qos import QoSClass
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import EnforcerEvent
from koordlet.enforcer.lifecycle import open_enforcer, restore
from koordlet.host.attributes import KernelFile
from koordlet.host.files import HostError
from tests.koordlet.enforcer.hosts import (
    QUOTA,
    FakeHost,
    infos,
    put_quota,
    quota,
    want,
)


def everything(host: FakeHost) -> dict[str, str]:
    return {str(path): path.read_text() for path in (host.root / "cg").rglob("*") if path.is_file()}


def test_a_dry_run_differs_in_the_write_alone(host: FakeHost) -> None:
    host.make("/lsr")
    cgroups = infos(pod=QoSClass.BE, lsr=QoSClass.LSR)
    story: list[list[Any]] = [
        [QUOTA, want(Knob.CPU_WEIGHT, "9"), want(Knob.CPUSET_CPUS, "2-3")],
        [want(Knob.CPU_MAX, "9000"), want(Knob.CPU_MAX, "20000", "/lsr"), want(Knob.MEMORY_LOW, "4096")],
        [want(Knob.CPU_MAX, "0"), want(Knob.FREEZE, "1"), want(Knob.IO_MAX, "8:0 rbps=5", "/nowhere")],
        [],
    ]

    def told(dry_run: bool) -> list[list[tuple[Any, ...]]]:
        enforcer = host.enforcer(dry_run=dry_run, audit_file=str(host.root / f"audit-{dry_run}.jsonl"))
        steps: list[list[EnforcerEvent]] = [enforcer.step(intents, cgroups, host.later(1)) for intents in story]
        steps.append(enforcer.close(host.clock))
        return [
            [(event.knob, event.target, event.file, event.before, event.after, event.outcome) for event in events]
            for events in steps
        ]

    before = everything(host)
    state_before = sorted(os.listdir(host.root / "state")) if (host.root / "state").exists() else None
    dry = told(dry_run=True)
    assert everything(host) == before
    assert (sorted(os.listdir(host.root / "state")) if (host.root / "state").exists() else None) == state_before
    assert dry == told(dry_run=False)
    lines = [json.loads(line) for line in (host.root / "audit-True.jsonl").read_text().splitlines()]
    wet = [json.loads(line) for line in (host.root / "audit-False.jsonl").read_text().splitlines()]
    assert {line.pop("dry_run") for line in lines} == {True}
    assert {line.pop("dry_run") for line in wet} == {False}
    for line in (*lines, *wet):
        del line["time"]
    assert lines == wet


def test_a_dry_run_sees_foreign_writes_too(v2: FakeHost) -> None:
    enforcer = v2.enforcer(dry_run=True)
    enforcer.step([QUOTA], now=v2.clock)
    put_quota(v2, "30000")
    assert [event.outcome for event in enforcer.step([QUOTA], now=v2.later(1))] == [
        Outcome.FOREIGN_WRITE,
        Outcome.BACKING_OFF,
    ]


def audit_of(host: FakeHost) -> list[tuple[str, str, bool]]:
    lines = map(json.loads, (host.root / "audit.jsonl").read_text().splitlines())
    return [(line["outcome"], line["to"], line["dry_run"]) for line in lines]


@pytest.mark.parametrize("is_handed_over", [False, True], ids=["killed", "handed-over"])
def test_a_dry_run_restores_the_actions_that_it_finds_and_adopts_nothing(v2: FakeHost, is_handed_over: bool) -> None:
    state = want(Knob.CPU_WEIGHT, "7", strategy="hooks", protocol_state=True)
    first = v2.enforcer()
    first.step([QUOTA, state], now=v2.clock)
    if is_handed_over:
        first.close(v2.clock, handover_seconds=60.0)
        assert first.handed_over_until is not None
    else:
        first._journal.close()
    dry = open_enforcer(v2.settings(dry_run=True), v2.tree, now=v2.later(1))
    assert quota(v2) == "max"
    assert audit_of(v2)[-1] == ("restored", "max 100000", False)
    assert v2.text("/pod", "cpu.weight") == "7"
    assert dry.active_settings() == {}
    dry.step([], now=v2.later(700))
    dry.close(v2.later(1))
    assert v2.text("/pod", "cpu.weight") == "7"
    assert {kind for kind, _, is_dry in audit_of(v2) if is_dry} == set()
    restore(v2.settings(), v2.tree, everything=True)
    assert v2.text("/pod", "cpu.weight") == "100"


def test_a_dry_run_leaves_the_actions_of_an_agent_that_runs(
    v2: FakeHost, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("koordlet.enforcer.lifecycle.WAIT_SECONDS", 0.0)
    running = v2.enforcer()
    running.step([QUOTA], now=v2.clock)
    open_enforcer(v2.settings(dry_run=True), v2.tree, now=v2.later(1)).close(v2.later(1))
    assert quota(v2) == "20000"
    assert "held by an agent that runs" in caplog.text
    running.close(v2.later(1))
    assert quota(v2) == "max"


def test_a_dry_run_goes_on_where_a_tree_cannot_be_written(
    v2: FakeHost, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = v2.enforcer()
    first.step([QUOTA], now=v2.clock)
    first._journal.close()

    def refuse(attribute: KernelFile, *_: object) -> None:
        raise HostError(attribute.path, "write", errno.EROFS)

    with monkeypatch.context() as patched:
        patched.setattr(KernelFile, "write", refuse)
        open_enforcer(v2.settings(dry_run=True), v2.tree, now=v2.later(1)).close(v2.later(1))
    assert "koordlet restore" in caplog.text
    restore(v2.settings(), v2.tree)
    assert quota(v2) == "max"
