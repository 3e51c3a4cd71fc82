"""Taints that travel to the manager, and limits as actions on pods."""

from api.intents import Intent, Knob, Setting, Strength
from api.kube.interference import WantedTaint
from koordlet.control.reports import MAX_ACTIONS, ControlReports
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import EnforcerEvent

KEY = "node.koordinator.sh/eviction-cooldown"


def taint(strategy: str = "eviction_cooldown", value: str = "evicted:NoSchedule", **given: object) -> Setting:
    given = {"target": KEY, "knob": Knob.NODE_TAINT, "reason": "pods were evicted", **given}
    return Setting(strategy=strategy, value=value, **given)  # type: ignore[arg-type]


def quota(**given: object) -> Setting:
    given = {"target": "/a", "value": "50000 100000", "knob": Knob.CPU_MAX, "reason": "", **given}
    return Setting(strategy="response", **given)  # type: ignore[arg-type]


def take(reports: ControlReports, *intents: Intent, now: float = 0.0, silent: tuple[str, ...] = ()) -> list[Outcome]:
    _, events = reports.take_taints(intents, silent, now, 1_700_000_000.0 + now)
    return [event.outcome for event in events]


def test_a_taint_is_stated_while_it_is_requested_and_keeps_its_beginning() -> None:
    reports = ControlReports()
    assert take(reports, taint()) == [Outcome.UNCHANGED]
    assert reports.taints() == (
        WantedTaint(
            key=KEY,
            value="evicted",
            strategy="eviction_cooldown",
            reason="pods were evicted",
            since="2023-11-14T22:13:20Z",
        ),
    )
    take(reports, taint(reason="more were"), now=30.0)
    (stated,) = reports.taints()
    assert (stated.reason, stated.since) == ("more were", "2023-11-14T22:13:20Z")
    take(reports, taint(value="evicted:PreferNoSchedule"), now=31.0)
    assert [each.since for each in reports.taints()] == ["2023-11-14T22:13:51Z"], "another taint begins anew"
    take(reports, now=32.0)
    assert reports.taints() == ()


def test_a_silent_strategy_keeps_its_taint_until_the_lease_ends() -> None:
    reports = ControlReports()
    take(reports, taint())
    take(reports, now=59.0, silent=("eviction_cooldown",))
    assert len(reports.taints()) == 1
    take(reports, now=60.0, silent=("eviction_cooldown",))
    assert reports.taints() == ()


def test_other_intents_pass_and_those_of_strategies_that_may_not_act() -> None:
    reports = ControlReports(("watermarks",))
    intents = [quota(), taint(), taint("watermarks")]
    rest, events = reports.take_taints(intents, (), 0.0, 0.0)
    assert rest == intents[:2]
    assert [event.strategy for event in events] == ["watermarks"]
    assert [each.strategy for each in reports.taints()] == ["watermarks"]
    assert ControlReports(()).take_taints(intents, (), 0.0, 0.0)[0] == intents


def test_of_two_that_want_one_key_the_stronger_wins() -> None:
    reports = ControlReports()
    first, second, third = taint("b"), taint("a"), taint("c", strength=Strength.HARD)
    assert take(reports, first, second, third).count(Outcome.CONFLICT) == 2
    assert [each.strategy for each in reports.taints()] == ["c"]
    take(reports, first, second)
    assert [each.strategy for each in reports.taints()] == ["a"]


def test_what_is_no_taint_is_refused() -> None:
    assert take(ControlReports(), taint(value="evicted"), taint(value="evicted:Never")) == [Outcome.REFUSED] * 2
    assert take(ControlReports(), taint(target="")) == [Outcome.REFUSED]


def event(outcome: Outcome, before: str = "max 100000", after: str = "50000 100000", **given: str) -> EnforcerEvent:
    given = {"target": "/a", "knob": "cpu.max", "reason": "it costs others time", **given}
    return EnforcerEvent(strategy="response", before=before, after=after, outcome=outcome, **given)  # type: ignore[arg-type]


def test_a_limit_begins_and_ends() -> None:
    reports = ControlReports()
    reports.note([event(Outcome.SET, verdict="/v|cpu-contention")], [quota()], 5.0)
    reports.note([event(Outcome.UNCHANGED), event(Outcome.CONFLICT)], [quota()], 6.0)
    reports.note([event(Outcome.RESTORED, "50000 100000", "max 100000")], [], 7.0)
    began, ended = reports.drain()
    assert (began.what, began.verdict, began.ended, began.time_seconds) == (
        "cpu.max 50000 100000",
        "/v|cpu-contention",
        False,
        5.0,
    )
    assert (ended.what, ended.ended) == ("cpu.max", True)
    assert reports.drain() == ()


def test_what_gives_more_protects_or_is_the_protocols_is_no_limit() -> None:
    reports = ControlReports()
    reports.note([event(Outcome.SET, "50000 100000", "max 100000")], [quota()], 1.0)
    reports.note([event(Outcome.SET, "0", "1000", knob="memory.low")], [], 1.0)
    reports.note([event(Outcome.SET)], [quota(protocol_state=True)], 1.0)
    reports.note([event(Outcome.SET, "1", "0", knob="cpu.idle")], [], 1.0)
    reports.note([event(Outcome.RESTORED, "50000 100000", "max 100000")], [], 1.0)
    assert reports.drain() == ()
    reports.note(
        [event(Outcome.SET, "0", "1", knob="cpu.idle"), event(Outcome.SET, "", "0-3", knob="cpuset.cpus")], [], 1.0
    )
    assert len(reports.drain()) == 2


def test_actions_that_nobody_fetches_are_bounded_and_counted() -> None:
    reports = ControlReports()
    reports.note([event(Outcome.SET, target=f"/{number}") for number in range(MAX_ACTIONS + 5)], [], 1.0)
    assert len(reports.drain()) == MAX_ACTIONS
    assert reports.dropped == 5
