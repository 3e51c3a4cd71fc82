"""What cgroups lack: remembered for a few seconds, looked up in turn, forgotten with the cgroup."""

from api.intents import Knob, Setting
from koordlet.enforcer.limits.lacks import Lacks


def setting(target: str = "/be", knob: Knob = Knob.CPUSET_CPUS, value: str = "0-1") -> Setting:
    return Setting(strategy="cpu_suppress", target=target, knob=knob, value=value, reason="tested")


def lacking(*settings: Setting, now: float) -> Lacks:
    """What two looks in a row found to be lacking."""
    lacks = Lacks()
    for each in settings:
        lacks.note(each, "not there", now - 1)
        lacks.note(each, "not there", now)
    return lacks


def test_a_lack_holds_for_seconds_and_for_one_value() -> None:
    lacks = lacking(setting(), now=10.0)
    assert lacks.reason(setting(), 10.9) == "not there"
    assert lacks.reason(setting(value="0"), 10.9) == ""
    assert lacks.reason(setting(), 11.0) == ""


def test_what_was_lacking_once_is_looked_up_in_the_next_step() -> None:
    """A runtime makes a cgroup in one hierarchy after the other."""
    lacks = Lacks()
    lacks.note(setting(), "not in the cpuset hierarchy", 10.0)
    assert lacks.reason(setting(), 10.0) == ""
    lacks.note(setting(), "another reason", 11.0)
    assert lacks.reason(setting(), 11.0) == ""
    lacks.note(setting(value="0"), "another reason", 12.0)
    assert lacks.reason(setting(value="0"), 12.0) == ""


def test_two_looks_of_one_step_are_one() -> None:
    lacks = Lacks()
    for second in (10.0, 10.0, 11.0):
        assert lacks.reason(setting(), second) == ""
        lacks.note(setting(), "not there", second)
    assert lacks.reason(setting(), 11.5) == "not there"


def test_many_are_looked_up_in_turn_and_each_within_five_seconds() -> None:
    lacks = Lacks()
    asked = [setting(f"/be{number}") for number in range(50)]
    looked = []
    for second in range(15):
        due = [one for one in asked if not lacks.reason(one, float(second))]
        for one in due:
            lacks.note(one, "not there", float(second))
        looked.append(len(due))
    assert looked == [50, 50] + [10] * 13


def test_other_targets_than_cgroups_are_looked_up_each_time() -> None:
    sysctl = setting("vm.swappiness", Knob.SYSCTL)
    assert lacking(sysctl, now=1.0).reason(sysctl, 1.0) == ""


def test_a_lack_is_forgotten_with_its_cgroup() -> None:
    lacks = lacking(setting(), now=1.0)
    lacks.keep({"/be"})
    assert lacks.reason(setting(), 1.5)
    lacks.keep({"/other"})
    assert lacks.reason(setting(), 1.5) == ""
