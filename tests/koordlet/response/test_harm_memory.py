"""Memory of rungs that made a victim worse off."""

from koordlet.response.harm_memory import HarmMemory
from koordlet.response.settings import ResponseSettings

DAY = 86_400.0


def barred_for(memory: HarmMemory, rung: str, now: float) -> float:
    return next(seconds for seconds in range(0, 100_000, 5) if not memory.bars(rung, now + seconds))


def test_once_may_be_chance_and_each_further_time_counts_double() -> None:
    memory = HarmMemory(ResponseSettings(hold_seconds=30.0, remember_seconds=900.0))
    assert not memory
    assert not memory.bars("quota", 0.0)
    lasted = []
    for number in range(4):
        memory.add("quota", number * DAY)
        lasted.append(barred_for(memory, "quota", number * DAY))
    assert lasted == [30, 900, 1800, 3600]
    assert not memory.bars("cpuset", 3 * DAY)


def test_a_suspicion_bars_freezing_for_good() -> None:
    memory = HarmMemory(ResponseSettings())
    memory.add("quota", 0.0)
    assert memory.bars("freeze", 1000 * DAY)
