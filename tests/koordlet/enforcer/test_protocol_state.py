"""Two kinds of writes: protocol state stays when the agent goes, actions lie over it and end to its present value."""

import os
from pathlib import Path

import pytest

from api.intents import Intent, Knob, Setting
from api.qos import QoSClass
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.conflicts import resolve_layers
from koordlet.enforcer.enforcer import Enforcer
from koordlet.enforcer.journal_format import Kind, decode
from koordlet.enforcer.lifecycle import restore
from tests.koordlet.enforcer.hosts import FakeHost, infos, outcomes, want
from tests.trees import make_tree

BE = infos(pod=QoSClass.BE)


def state(knob: Knob, value: str, target: str = "/pod", strategy: str = "hooks") -> Setting:
    return want(knob, value, target, strategy, protocol_state=True)


BATCH = state(Knob.CPU_MAX, "50000 100000")
SUPPRESSED = want(Knob.CPU_MAX, "20000 100000")


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def host(tmp_path: Path, request: pytest.FixtureRequest) -> FakeHost:
    made = FakeHost(tmp_path, request.param)
    made.make("/pod")
    return made


@pytest.fixture
def old(tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path, 1)
    made.make("/pod")
    return made


def quota(host: FakeHost, path: str = "/pod") -> str:
    text = host.text(path, "cpu.max" if host.version == 2 else "cpu.cfs_quota_us").split()[0]
    return "max" if text == "-1" else text


def step(
    host: FakeHost, enforcer: Enforcer, *intents: Intent, silent: tuple[str, ...] = ()
) -> list[tuple[str, str, str]]:
    return outcomes(enforcer.step(intents, BE, host.later(1), silent=silent))


def die(host: FakeHost, *steps: list[Intent]) -> None:
    """Run in a child that ends without tidying up."""
    pid = os.fork()
    if pid == 0:
        try:
            enforcer = host.enforcer()
            for intents in steps:
                enforcer.step(intents, BE, host.later(1))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def kinds(host: FakeHost) -> list[Kind]:
    return [entry.kind for entry in decode((host.root / "state/journal").read_bytes()).live.values()]


def test_protocol_state_stays_when_the_agent_goes_and_ends_when_it_is_asked_for_no_more(host: FakeHost) -> None:
    enforcer = host.enforcer()
    step(host, enforcer, BATCH)
    assert quota(host) == "50000"
    enforcer.close(host.later(1))
    assert quota(host) == "50000"
    successor = host.enforcer()
    assert step(host, successor, BATCH) == []
    assert quota(host) == "50000"
    step(host, successor, state(Knob.CPU_WEIGHT, "7"))
    assert quota(host) == "max"
    successor.close(host.later(1))


@pytest.mark.parametrize("everything", [False, True])
def test_after_a_death_actions_are_restored_and_protocol_state_on_request(host: FakeHost, everything: bool) -> None:
    die(host, [BATCH], [BATCH, SUPPRESSED])
    assert quota(host) == "20000"
    assert set(kinds(host)) == {Kind.ACTION}
    events = restore(host.settings(), host.tree, everything=everything)
    assert {event.outcome for event in events} <= {Outcome.RESTORED, Outcome.UNCHANGED}
    assert quota(host) == ("max" if everything else "50000")
    if not everything:
        assert set(kinds(host)) == {Kind.PROTOCOL}
    restore(host.settings(), host.tree, everything=True)
    assert quota(host) == "max"
    assert restore(host.settings(), host.tree, everything=True) == []


def test_an_action_lies_over_protocol_state_and_ends_to_its_present_value(host: FakeHost) -> None:
    enforcer = host.enforcer()
    step(host, enforcer, BATCH)
    assert ("cpu.max", "overlaid", "50000 100000") in step(host, enforcer, BATCH, SUPPRESSED)
    assert quota(host) == "20000"
    changed = state(Knob.CPU_MAX, "40000 100000")
    step(host, enforcer, changed, SUPPRESSED)
    assert quota(host) == "20000"
    assert {one.value for one in enforcer.held_protocol_state().values()} == {"40000 100000"}
    step(host, enforcer, changed)
    assert quota(host) == "40000"
    step(host, enforcer)
    assert quota(host) == "max"
    enforcer.close(host.later(1))


def test_what_changed_under_an_action_is_what_a_death_restores(host: FakeHost) -> None:
    die(host, [BATCH], [BATCH, SUPPRESSED], [state(Knob.CPU_MAX, "30000 100000"), SUPPRESSED])
    assert quota(host) == "20000"
    restore(host.settings(), host.tree)
    assert quota(host) == "30000"


def test_an_action_loosens_no_limit_of_the_protocol(host: FakeHost) -> None:
    enforcer = host.enforcer()
    found = step(host, enforcer, BATCH, want(Knob.CPU_MAX, "80000 100000"))
    assert ("cpu.max", "conflict", "80000 100000") in found
    assert quota(host) == "50000"
    step(host, enforcer, state(Knob.CPU_MAX, "90000 100000"), want(Knob.CPU_MAX, "80000 100000"))
    assert quota(host) == "80000"
    enforcer.close(host.later(1))
    assert quota(host) == "90000"


def test_both_at_once_need_one_write(host: FakeHost) -> None:
    enforcer = host.enforcer()
    found = step(host, enforcer, BATCH, SUPPRESSED)
    assert [outcome for _, outcome, _ in found].count("set") == 1
    step(host, enforcer, SUPPRESSED)
    assert enforcer.held_protocol_state() == {}
    step(host, enforcer)
    assert quota(host) == "max"


def test_the_order_in_which_both_end_does_not_matter(host: FakeHost) -> None:
    enforcer = host.enforcer()
    step(host, enforcer, SUPPRESSED)
    step(host, enforcer, BATCH, SUPPRESSED)
    step(host, enforcer, BATCH)
    assert quota(host) == "50000"
    step(host, enforcer, BATCH, SUPPRESSED)
    step(host, enforcer)
    assert quota(host) == "max"
    enforcer.close(host.later(1))
    assert kinds(host) == []


def test_protocol_state_of_a_silent_strategy_has_no_end(host: FakeHost) -> None:
    enforcer = host.enforcer()
    step(host, enforcer, BATCH, SUPPRESSED)
    for _ in range(100):
        step(host, enforcer, silent=("hooks",))
    assert quota(host) == "50000"


def test_a_silent_strategys_action_ends_with_its_lease_to_protocol_state(host: FakeHost) -> None:
    enforcer = host.enforcer()
    step(host, enforcer, BATCH, SUPPRESSED)
    step(host, enforcer, BATCH, silent=("calm",))
    assert quota(host) == "20000"
    for _ in range(60):
        step(host, enforcer, BATCH, silent=("calm",))
    assert quota(host) == "50000"


def test_protocol_state_that_no_strategy_claims_is_restored_in_the_end(host: FakeHost) -> None:
    die(host, [BATCH])
    enforcer = host.enforcer()
    step(host, enforcer)
    assert quota(host) == "50000"
    for _ in range(40):
        host.later(15)
        step(host, enforcer)
    assert quota(host) == "max"


def test_an_action_that_is_declined_leaves_protocol_state(host: FakeHost) -> None:
    enforcer = host.enforcer()
    host.make("/lsr")
    cgroups = infos(lsr=QoSClass.LSR)
    pinned, moved = state(Knob.CPUSET_CPUS, "2-3", "/lsr"), want(Knob.CPUSET_CPUS, "0-1", "/lsr")
    found = outcomes(enforcer.step([pinned, moved], cgroups, host.later(1)))
    assert ("cpuset.cpus", "protected", "0-1") in found
    assert host.text("/lsr", "cpuset.cpus") == "2-3"


def test_idle_lies_over_the_weight_of_the_protocol(host: FakeHost) -> None:
    weight, idle = state(Knob.CPU_WEIGHT, "7"), want(Knob.CPU_IDLE, "1")
    name = "cpu.weight" if host.version == 2 else "cpu.shares"
    enforcer = host.enforcer()
    step(host, enforcer, weight)
    given = host.text("/pod", name)
    step(host, enforcer, weight, idle)
    kernels = {"cpu.weight": "1", "cpu.shares": "3"}[name]
    host.file("/pod", name).write_text(kernels)
    assert host.text("/pod", "cpu.idle") == "1"
    heavier = state(Knob.CPU_WEIGHT, "9")
    assert step(host, enforcer, heavier, idle)
    assert host.text("/pod", name) == kernels
    step(host, enforcer, heavier)
    assert host.text("/pod", "cpu.idle") == "0"
    assert host.text("/pod", name) not in (given, kernels)
    step(host, enforcer)
    assert host.text("/pod", name) == {"cpu.weight": "100", "cpu.shares": "1024"}[name]
    enforcer.close(host.later(1))


def test_a_death_while_idle_restores_the_weight_of_the_protocol(host: FakeHost) -> None:
    weight = state(Knob.CPU_WEIGHT, "7")
    name = "cpu.weight" if host.version == 2 else "cpu.shares"
    die(host, [weight])
    given = host.text("/pod", name)
    die(host, [weight, want(Knob.CPU_IDLE, "1")])
    host.file("/pod", name).write_text({"cpu.weight": "1", "cpu.shares": "3"}[name])
    restore(host.settings(), host.tree)
    assert (host.text("/pod", "cpu.idle"), host.text("/pod", name)) == ("0", given)


def test_only_protocol_state_of_a_knob_survives_where_the_action_sets_other_devices(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    host.make("/pod")
    limits = host.file("/pod", "io.max")
    enforcer = host.enforcer()
    step(host, enforcer, state(Knob.IO_MAX, "8:0 rbps=1000000"))
    assert "rbps=1000000" in limits.read_text()
    step(host, enforcer, state(Knob.IO_MAX, "8:0 rbps=1000000"), want(Knob.IO_MAX, "8:16 wbps=500000"))
    enforcer.close(host.later(1))
    assert {
        entry.protocol.text
        for entry in decode((tmp_path / "state/journal").read_bytes()).live.values()
        if entry.protocol
    } == {"1000000"}


def test_a_cgroup_made_under_suppression_ends_with_the_list_that_it_would_have_had(old: FakeHost) -> None:
    old.make("/pods")
    narrow = [want(Knob.CPUSET_CPUS, "0-1", "/pods")]
    enforcer = old.enforcer()
    present = infos(pods=QoSClass.BE)
    enforcer.step(narrow, present, old.later(1))
    old.make("/pods/born")
    old.file("/pods/born", "cpuset.cpus").write_text("0-1\n")
    present = infos(pods=QoSClass.BE, pods__born=QoSClass.BE)
    enforcer.step(narrow, present, old.later(1))
    live = decode((old.root / "state/journal").read_bytes()).live
    assert {entry.original for entry in live.values()} == {"0-7"}
    assert len(live) == 2
    enforcer.step([*narrow, want(Knob.CPUSET_CPUS, "0-1", "/pods/born")], present, old.later(1))
    enforcer.step([], present, old.later(1))
    assert old.text("/pods/born", "cpuset.cpus") == old.text("/pods", "cpuset.cpus") == "0-7"


def test_a_cgroup_that_had_the_narrow_list_before_keeps_it(old: FakeHost) -> None:
    old.make("/pods")
    old.make("/pods/elder")
    old.file("/pods/elder", "cpuset.cpus").write_text("0-1\n")
    present = infos(pods=QoSClass.BE, pods__elder=QoSClass.BE)
    enforcer = old.enforcer()
    enforcer.step([], present, old.later(1))
    both = [want(Knob.CPUSET_CPUS, "0-1", path) for path in ("/pods", "/pods/elder")]
    enforcer.step(both[:1], present, old.later(1))
    enforcer.step(both, present, old.later(1))
    enforcer.step([], present, old.later(1))
    assert old.text("/pods/elder", "cpuset.cpus") == "0-1"


def test_the_present_state_as_a_value(host: FakeHost) -> None:
    enforcer = host.enforcer()
    before = enforcer.active_state()
    narrow, score = want(Knob.CPUSET_CPUS, "0-1"), state(Knob.OOM_SCORE_ADJ, "900")
    step(host, enforcer, narrow, BATCH, score)
    present = enforcer.active_state()
    assert before.of("/pod") == {}
    assert present.of("/pod")[Knob.CPUSET_CPUS] == "0-1"
    assert present.of("/pod")[Knob.CPU_MAX] == "50000 100000"
    step(host, enforcer, narrow, BATCH, score)
    assert enforcer.active_state() is present
    with pytest.raises(TypeError):
        present.settings["/pod"] = {}  # type: ignore[index]
    enforcer.close(host.later(1))


def test_layers_of_processes_go_to_the_lower_cgroup() -> None:
    upper, lower = want(Knob.OOM_SCORE_ADJ, "1", "/a"), state(Knob.OOM_SCORE_ADJ, "2", "/a/b")
    winners, losses, overlaid = resolve_layers([upper, lower], lambda _: QoSClass.BE)
    assert [wanted.setting for wanted in winners.values()] == [lower]
    assert [loss.loser for loss in losses] == [upper]
    assert overlaid == []


def test_for_a_latency_sensitive_pod_the_wider_of_both(host: FakeHost) -> None:
    enforcer = host.enforcer()
    given, burst = state(Knob.CPU_MAX, "50000 100000"), want(Knob.CPU_MAX, "80000 100000")
    enforcer.step([given, burst], infos(pod=QoSClass.LS), host.later(1))
    assert quota(host) == "80000"
    enforcer.close(host.later(1))
    assert quota(host) == "50000"


def test_idle_of_the_protocol_and_the_weight_below_it_survive_a_death(host: FakeHost) -> None:
    name = "cpu.weight" if host.version == 2 else "cpu.shares"
    before = host.text("/pod", name)
    idle = state(Knob.CPU_IDLE, "1")
    die(host, [idle])
    host.file("/pod", name).write_text({"cpu.weight": "1", "cpu.shares": "3"}[name])
    successor = host.enforcer()
    assert step(host, successor, idle) == []
    assert host.text("/pod", "cpu.idle") == "1"
    step(host, successor, state(Knob.CPU_MAX, "50000 100000"))
    assert (host.text("/pod", "cpu.idle"), host.text("/pod", name)) == ("0", before)
    successor.close(host.later(1))


QUIET = ("hooks",)


def settle(host: FakeHost, enforcer: Enforcer, *states: Intent) -> None:
    """Have states in effect of a strategy that has nothing more to say."""
    step(host, enforcer, *states)
    for _ in range(3):
        assert step(host, enforcer, silent=QUIET) == []


def test_settled_state_stays_and_an_action_still_lies_over_it(host: FakeHost) -> None:
    enforcer = host.enforcer()
    settle(host, enforcer, BATCH)
    assert enforcer.step([], BE, host.later(1), silent=QUIET) == []  # not even looked at
    assert ("cpu.max", "overlaid", "50000 100000") in step(host, enforcer, SUPPRESSED, silent=QUIET)
    assert quota(host) == "20000"
    assert enforcer.active_state().actions == {"/pod": {Knob.CPU_MAX: SUPPRESSED.value}}
    assert enforcer.holds(BATCH)
    step(host, enforcer, silent=QUIET)
    assert quota(host) == "50000"
    settle(host, enforcer, BATCH)
    step(host, enforcer)
    assert quota(host) == "max"
    assert not enforcer.holds(BATCH)


def test_an_idle_cgroup_has_its_settled_weight_below(host: FakeHost) -> None:
    enforcer = host.enforcer()
    weight = state(Knob.CPU_WEIGHT, "7")
    settle(host, enforcer, weight)
    found = step(host, enforcer, want(Knob.CPU_IDLE, "1"), silent=QUIET)
    assert ("cpu.weight", "overlaid", "7") in found
    assert enforcer.holds(weight)
    step(host, enforcer, silent=QUIET)
    assert host.text("/pod", "cpu.idle") == "0"
    assert enforcer.holds(weight)


def test_an_action_on_processes_above_settled_state_of_the_same_knob_is_a_conflict(host: FakeHost) -> None:
    host.make("/pod/inner")
    files = {"cpu/pod/inner/cgroup.procs": "77\n", "memory/pod/inner/cgroup.procs": "77\n"}
    if host.version == 2:
        files = {"pod/inner/cgroup.procs": "77\n"}
    make_tree(host.root, {f"cg/{name}": text for name, text in files.items()} | {"proc/77/oom_score_adj": "0\n"})
    enforcer = host.enforcer()
    settle(host, enforcer, state(Knob.OOM_SCORE_ADJ, "500", "/pod/inner"))
    found = step(host, enforcer, want(Knob.OOM_SCORE_ADJ, "900"), silent=QUIET)
    assert ("oom_score_adj", "conflict", "900") in found


def test_another_program_is_noticed_in_settled_state_of_hundreds_within_fifteen_steps(host: FakeHost) -> None:
    paths = [f"/pod/{number}" for number in range(300)]
    for path in paths:
        host.make(path)
    enforcer = host.enforcer(pod_changes_per_minute=1000)
    settle(host, enforcer, *(state(Knob.CPU_MAX, "50000 100000", path) for path in paths))
    file = host.file(paths[123], "cpu.max" if host.version == 2 else "cpu.cfs_quota_us")
    file.write_text("70000 100000\n" if host.version == 2 else "70000\n")
    found = [one for _ in range(15) for one in step(host, enforcer, silent=QUIET)]
    assert [(knob, outcome) for knob, outcome, _ in found] == [("cpu.max", "foreign_write")]


def test_what_was_there_already_counts_as_in_effect_until_it_is_no_longer_there(host: FakeHost) -> None:
    name, text, other = ("cpu.max", "50000 100000\n", "9000 100000\n")
    if host.version == 1:
        name, text, other = "cpu.cfs_quota_us", "50000\n", "9000\n"
    host.file("/pod", name).write_text(text)
    enforcer = host.enforcer()
    settle(host, enforcer, BATCH)
    assert enforcer.holds(BATCH)
    assert not (host.root / "state/journal").exists() or kinds(host) == []
    host.file("/pod", name).write_text(other)
    assert step(host, enforcer, silent=QUIET) == []
    assert not enforcer.holds(BATCH)
    assert ("cpu.max", "set") in [(knob, outcome) for knob, outcome, _ in step(host, enforcer, BATCH, silent=QUIET)]
    assert quota(host) == "50000"
    step(host, enforcer)
    assert quota(host) == "9000"
