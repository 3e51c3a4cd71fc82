"""The pure rules: values, conflicts, protection, write order and budgets."""

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.intents import Knob, Setting, Strength
from api.qos import QoSClass
from koordlet.enforcer.conflicts import resolve
from koordlet.enforcer.limits.budgets import Budgets, pod_of
from koordlet.enforcer.protected import ProtectedCgroups
from koordlet.enforcer.write_order import KnobChange, interim, order
from koordlet.host.attribute_formats import Format
from koordlet.host.attributes import KernelFile
from koordlet.host.knobs.direction import Direction, compare
from koordlet.host.knobs.knobs import Assignment
from koordlet.host.knobs.table import KNOBS, check
from koordlet.host.knobs.values import Amount
from tests.koordlet.enforcer.hosts import want


def amount(knob: Knob, value: str) -> Amount:
    return KNOBS[knob].amount(value)


@pytest.mark.parametrize(
    ("knob", "value", "told"),
    [
        (Knob.CPU_MAX, "0", "0 is not unlimited"),
        (Knob.CPU_MAX, "0 100000", "write max"),
        (Knob.CPU_MAX, "500", "between 1000"),
        (Knob.CPU_MAX, "-1", "between 1000"),
        (Knob.CPU_MAX, "1000 5", "between 1000 and 1000000"),
        (Knob.MEMORY_MAX, "0", "0 is not unlimited"),
        (Knob.MEMORY_HIGH, "-1", "between 1"),
        (Knob.MEMORY_MAX, "1G", "no whole number"),
        (Knob.IO_MAX, "8:0 rbps=0", "0 is not unlimited"),
        (Knob.IO_MAX, "sda rbps=1", "is not"),
        (Knob.CPUSET_CPUS, "", "means no limit"),
        (Knob.CPUSET_CPUS, "3-1", "not a CPU list"),
        (Knob.CPU_WEIGHT, "0", "between 1"),
        (Knob.CPU_IDLE, "2", "between 0 and 1"),
        (Knob.OOM_SCORE_ADJ, "1001", "between -1000"),
        (Knob.IO_WEIGHT, "", "no whole number"),
        (Knob.SYSCTL, "", "no value"),
        (Knob.SYSCTL, "1\0", "NUL"),
    ],
)
def test_values_that_are_none(knob: Knob, value: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        check(want(knob, value))


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        pytest.param(Knob.CPU_MAX, "max", id="unlimited-quota"),
        pytest.param(Knob.CPU_MAX, "1000 1000000", id="quota-of-a-thousandth"),
        pytest.param(Knob.MEMORY_MIN, "0", id="no-memory-min"),
        pytest.param(Knob.MEMORY_LOW, "max", id="memory-low-max"),
        pytest.param(Knob.IO_MAX, "8:0 rbps=max wbps=1", id="io-max-of-one-direction"),
        pytest.param(Knob.IO_WEIGHT, "default 100\n8:0 10000", id="io-weight-highest"),
        pytest.param(Knob.RESCTRL_GROUP, "", id="root-group"),
    ],
)
def test_values_that_are_some(knob: Knob, value: str) -> None:
    check(want(knob, value))


@pytest.mark.parametrize(
    ("knob", "less", "more"),
    [
        (Knob.CPU_MAX, "20000 100000", "30000 100000"),
        (Knob.CPU_MAX, "20000 100000", "20000 50000"),
        (Knob.CPU_MAX, "20000", "max"),
        (Knob.CPUSET_CPUS, "0-1", "0-3"),
        (Knob.CPU_IDLE, "1", "0"),
        (Knob.FREEZE, "1", "0"),
        (Knob.OOM_SCORE_ADJ, "900", "-900"),
        (Knob.MEMORY_HIGH, "4096", "max"),
        (Knob.IO_MAX, "8:0 rbps=5 wbps=max", "8:0 rbps=6 wbps=7"),
    ],
)
def test_what_gives_more(knob: Knob, less: str, more: str) -> None:
    assert compare(amount(knob, less), amount(knob, more)) == Direction.WIDER
    assert compare(amount(knob, more), amount(knob, less)) == Direction.TIGHTER


CONFLICTS = [
    pytest.param(QoSClass.BE, [("a", "50000"), ("b", "20000")], "b", id="best-effort-gets-less"),
    pytest.param(QoSClass.NONE, [("a", "50000"), ("b", "20000")], "b", id="unknown-gets-less"),
    pytest.param(QoSClass.LS, [("a", "50000"), ("b", "max")], "b", id="latency-sensitive-gets-more"),
    pytest.param(QoSClass.LSR, [("a", "50000"), ("b", "20000")], "a", id="reserved-gets-more"),
    pytest.param(QoSClass.BE, [("b", "20000 100000"), ("a", "10000 50000")], "a", id="equal-goes-by-name"),
]


@pytest.mark.parametrize(("qos", "intents", "winner"), CONFLICTS)
def test_who_wins(qos: QoSClass, intents: list[tuple[str, str]], winner: str) -> None:
    for turn in itertools.permutations(intents):
        settings = [want(Knob.CPU_MAX, value, strategy=strategy) for strategy, value in turn]
        winners, losses = resolve(settings, lambda _: qos)
        assert winners["/pod", Knob.CPU_MAX].strategy == winner
        assert {loss.loser.strategy for loss in losses} == {"a", "b"} - {winner}


def test_the_gentler_wins_where_values_have_no_order() -> None:
    hard = want(Knob.SYSCTL, "1", "vm.x", "a", strength=Strength.HARD)
    mild = want(Knob.SYSCTL, "2", "vm.x", "b", strength=Strength.MILD)
    assert resolve([hard, mild], lambda _: QoSClass.NONE)[0]["vm.x", Knob.SYSCTL] is mild


def test_an_idle_cgroup_has_no_weight() -> None:
    idle, weight = want(Knob.CPU_IDLE, "1", strategy="z"), want(Knob.CPU_WEIGHT, "50", strategy="a")
    winners, losses = resolve([weight, idle], lambda _: QoSClass.BE)
    assert set(winners.values()) == {idle}
    assert [loss.loser for loss in losses] == [weight]


def test_of_nested_settings_of_processes_the_lower_wins() -> None:
    upper, lower = want(Knob.OOM_SCORE_ADJ, "1", "/a"), want(Knob.OOM_SCORE_ADJ, "2", "/a/b/c")
    beside = want(Knob.OOM_SCORE_ADJ, "3", "/ab")
    winners, losses = resolve([upper, lower, beside], lambda _: QoSClass.BE)
    assert set(winners.values()) == {lower, beside}
    assert [(loss.loser, loss.winner) for loss in losses] == [(upper, lower)]


settings = st.builds(
    want,
    knob=st.sampled_from([Knob.CPU_MAX, Knob.CPU_IDLE, Knob.CPU_WEIGHT, Knob.OOM_SCORE_ADJ]),
    value=st.sampled_from(["1", "0"]),
    target=st.sampled_from(["/a", "/a/b"]),
    strategy=st.sampled_from(["x", "y", "z"]),
    strength=st.sampled_from(Strength),
)


@given(st.lists(settings, max_size=8), st.sampled_from(QoSClass), st.randoms(use_true_random=False))
def test_the_rule_does_not_depend_on_the_order_of_intents(
    intents: list[Setting], qos: QoSClass, chance: object
) -> None:
    shuffled = list(intents)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    first, again = resolve(intents, lambda _: qos)[0], resolve(shuffled, lambda _: qos)[0]
    assert {owner: (s.value, s.strategy, s.strength) for owner, s in first.items()} == {
        owner: (s.value, s.strategy, s.strength) for owner, s in again.items()
    }


PROTECTION = ProtectedCgroups(
    ("/", "/system.slice", "/system.slice/*"),
    {"/kube/lsr": QoSClass.LSR, "/kube/be": QoSClass.BE, "/kube/ls": QoSClass.LS},
    frozenset({"/kube/be/precious"}),
    "/agents/koordlet",
)


@pytest.mark.parametrize(
    ("target", "protected"),
    [
        ("/", True),
        ("/system.slice/sshd.service", True),
        ("/kube/lsr", True),
        ("/kube/lsr/container", True),
        ("/kube", True),
        ("/kube/be", True),
        ("/kube/be/precious", True),
        ("/kube/be/precious/child", True),
        ("/kube/be/other", False),
        ("/kube/ls", False),
        ("/agents", True),
        ("/agents/koordlet", True),
        ("/agents/other", False),
        ("/systematic", False),
    ],
)
def test_what_is_protected(target: str, protected: bool) -> None:
    assert bool(PROTECTION.reason(target)) == protected
    assert bool(PROTECTION.forbids(Knob.CPU_MAX, target, Direction.TIGHTER)) == protected
    assert PROTECTION.forbids(Knob.CPU_MAX, target, Direction.WIDER) == ""
    assert PROTECTION.forbids(Knob.MEMORY_MIN, target, Direction.WIDER) == ""
    assert bool(PROTECTION.forbids(Knob.RESCTRL_GROUP, target, Direction.ASIDE)) == protected


def test_a_pattern_protects_what_is_above_its_cgroups_as_long_as_they_are_there() -> None:
    jobs = dict.fromkeys(("/batch", "/batch/jobs", "/batch/jobs/db-1", "/batch/other"), QoSClass.BE)
    protection = ProtectedCgroups(("/", "/batch/jobs/db-*"), jobs, frozenset(), "")
    assert [bool(protection.reason(path)) for path in jobs] == [True, True, True, False]
    without = ProtectedCgroups(("/", "/batch/jobs/db-*"), {"/batch": QoSClass.BE}, frozenset(), "")
    assert without.reason("/batch") == ""


def test_the_kubelets_own_directory_is_never_idle() -> None:
    bare = ProtectedCgroups((), {}, frozenset(), "")
    directory = "/kubepods.slice/kubepods-besteffort.slice"
    assert "kubelet" in bare.forbids(Knob.CPU_IDLE, directory, Direction.TIGHTER)
    assert "kubelet" in bare.forbids(Knob.CPU_IDLE, directory, Direction.WIDER)
    assert bare.forbids(Knob.CPU_MAX, directory, Direction.TIGHTER) == ""


def test_protocol_state_of_an_lsr_pod_is_its_own() -> None:
    assert PROTECTION.forbids(Knob.CPUSET_CPUS, "/kube/lsr", Direction.TIGHTER, protocol_state=True) == ""
    assert PROTECTION.forbids(Knob.FREEZE, "/kube/lsr", Direction.TIGHTER, protocol_state=True)
    assert PROTECTION.forbids(Knob.CPUSET_CPUS, "/kube", Direction.TIGHTER, protocol_state=True)
    assert PROTECTION.forbids(Knob.CPUSET_CPUS, "/kube/be/precious", Direction.TIGHTER, protocol_state=True)
    assert PROTECTION.forbids(Knob.CPU_MAX, "/system.slice/sshd.service", Direction.TIGHTER, protocol_state=True)


def test_budgets_of_a_minute() -> None:
    budgets = Budgets(3, 2)
    assert [bool(budgets.spend(target, 0.0)) for target in ("/a", "/a", "/a", "/b", "/c")] == [0, 0, 1, 0, 1]
    assert budgets.spend("/a", 59.0)
    assert budgets.spend("/a", 60.0) == ""


def test_a_container_counts_for_its_pod() -> None:
    pod = "/kubepods/besteffort/pod12345678-1234-1234-1234-123456789012"
    assert pod_of(f"{pod}/{'a' * 64}") == pod
    assert pod_of("/batch/job") == "/batch/job"


class Kernel:
    """Refuses what cpusets (v1), quotas and bursts refuse, with three cgroups one below the other."""

    def __init__(self, state: dict[tuple[str, Knob], str]) -> None:
        self.state = dict(state)

    def write(self, target: str, knob: Knob, value: str) -> None:
        self.state[target, knob] = value
        paths = sorted({path for path, _ in self.state})
        for parent, child in itertools.pairwise(paths):
            cpus = [amount(Knob.CPUSET_CPUS, self.state[path, Knob.CPUSET_CPUS]) for path in (parent, child)]
            assert cpus[0] is not None and cpus[1] is not None
            assert cpus[1] <= cpus[0], f"{child} would leave the CPUs of {parent}"
            quotas = [amount(Knob.CPU_MAX, self.state[path, Knob.CPU_MAX]) for path in (parent, child)]
            assert quotas[1] <= quotas[0], f"the quota of {child} would exceed that of {parent}"  # type: ignore[operator]
        for path in paths:
            quota = self.state[path, Knob.CPU_MAX].partition(" ")[0]
            limit = math.inf if quota == "max" else int(quota)
            assert int(self.state[path, Knob.CPU_BURST]) <= limit, f"burst of {path} above its quota"


FORMS = {Knob.CPUSET_CPUS: Format.CPUS, Knob.CPU_MAX: Format.CPU_MAX, Knob.CPU_BURST: Format.INTEGER}
PATHS = ("/a", "/a/b", "/a/b/c")


@st.composite
def states(draw: st.DrawFn) -> dict[tuple[str, Knob], str]:
    """A state that the kernel would accept."""
    cpus = draw(st.sets(st.integers(0, 5), min_size=1))
    quota = draw(st.sampled_from([10_000, 20_000, 40_000, 1 << 40]))
    state = {}
    for path in PATHS:
        state[path, Knob.CPUSET_CPUS] = ",".join(map(str, sorted(cpus)))
        state[path, Knob.CPU_MAX] = f"{'max' if quota >= 1 << 39 else quota} 100000"
        state[path, Knob.CPU_BURST] = str(draw(st.integers(0, min(quota, 100_000))))
        cpus = draw(st.sets(st.sampled_from(sorted(cpus)), min_size=1))
        quota = draw(st.sampled_from([value for value in (5_000, 10_000, 20_000, 40_000, 1 << 40) if value <= quota]))
    return state


@given(states(), states())
def test_the_kernel_accepts_every_write_in_our_order(
    old: dict[tuple[str, Knob], str], new: dict[tuple[str, Knob], str]
) -> None:
    changes = []
    for (target, knob), value in new.items():
        before = old[target, knob]
        assignment = Assignment(KernelFile(f"{target}/{knob}", FORMS[knob]), value)
        way = compare(amount(knob, before), amount(knob, value))
        if way != Direction.SAME:
            changes.append(KnobChange(knob, target, ((assignment, before),), way))
    kernel = Kernel(old)
    for write in order(changes):
        change = changes[write.change]
        kernel.write(change.target, change.knob, write.value)
    assert kernel.state == {
        key: value if compare(amount(key[1], old[key]), amount(key[1], value)) != Direction.SAME else old[key]
        for key, value in new.items()
    }


def test_a_list_that_moves_passes_through_both() -> None:
    assignment = Assignment(KernelFile("/a/cpuset.cpus", Format.CPUS), "2-3")
    assert interim(assignment, "0-1") == "0-3"
    assert interim(assignment, "2") == ""
    assert interim(assignment, "") == ""


def test_a_longer_period_goes_before_its_quota_and_a_shorter_one_after() -> None:
    def files(period: tuple[str, str]) -> list[str]:
        quota = Assignment(KernelFile("/a/cpu.cfs_quota_us", Format.QUOTA_US), "20000"), "10000"
        other = Assignment(KernelFile("/a/cpu.cfs_period_us", Format.INTEGER), period[1]), period[0]
        change = KnobChange(Knob.CPU_MAX, "/a", (quota, other), Direction.WIDER)
        return [Path(write.assignment.attribute.path).name.split("_")[1] for write in order([change])]

    assert files(("100000", "200000")) == ["period", "quota"]
    assert files(("100000", "50000")) == ["quota", "period"]


def test_a_cgroup_that_only_does_not_name_is_not_even_widened() -> None:
    bounded = ProtectedCgroups((), {}, frozenset(), "", ("/mine/*",))
    assert bounded.forbids(Knob.CPU_IDLE, "/mine/batch", Direction.TIGHTER) == ""
    assert "only" in bounded.forbids(Knob.CPU_IDLE, "/yours", Direction.TIGHTER)
    assert "only" in bounded.forbids(Knob.CPU_WEIGHT, "/yours", Direction.WIDER)
    assert "only" in bounded.reason("/yours")
