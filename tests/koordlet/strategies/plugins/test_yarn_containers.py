from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.intents import Intent, Knob
from api.qos import QoSClass, QoSSource
from api.settings import SettingsError
from koordlet.strategies.plugins.yarn_containers import YarnContainers, YarnContainersSettings
from koordlet.strategies.settings import settings_of
from koordlet.strategies.view import Group
from tests.koordlet.strategies.views import BEST_EFFORT, GIB, app, directory, evicted, pod, settings, view

DEFAULTS = {
    "gates": {},
    "settings": {
        "enable": False,
        "application": "hadoop-yarn",
        "memoryEvictThresholdPercent": 68,
        "memoryEvictLowerPercent": None,
        "graceSeconds": 1.0,
    },
}

FRAME = f"{BEST_EFFORT}/hadoop-yarn"


def frame(path: str = FRAME, **more: Any) -> Group:
    return app("hadoop-yarn", QoSClass.BE, path, **more)


def ran(number: int, gib: float | None = 1, cores: float | None = 1, attempt: int = 1, at: str = FRAME) -> Group:
    """A container of YARN; 1 is the application's master."""
    name = f"container_e17_1410901177871_0001_{attempt:02d}_{number:06d}"
    size = None if gib is None else int(gib * GIB)
    usage = None if cores is None else cores * 1000
    return app(name, QoSClass.BE, f"{at}/{name}", memory_bytes=size, cpu_millicores=usage)


def made(**fields: Any) -> YarnContainers:
    return YarnContainers(YarnContainersSettings(enable=True, **fields))


def decide(strategy: YarnContainers, *groups: Group, used: int | None = 69, now: float = 0.0) -> list[Intent]:
    """Return the intents on a node of 100 GiB of which `used` are used."""
    return strategy.decide(view(*groups, memory_bytes=None if used is None else used * GIB), now)


def numbers(intents: list[Intent]) -> list[int]:
    return [int(path[-6:]) for path in evicted(intents)]


def test_what_loses_least_work_for_its_memory_goes_first() -> None:
    strategy = made()
    work = [ran(2, 1, 4), ran(3, 1, 1), ran(4, 3, 2), ran(5, 1, 0)]
    for second in range(10):
        decide(strategy, frame(), *work, used=50, now=second)
    # 5 has done nothing, 4 has 6.7 core-seconds for each GiB, 3 has 10, 2 has 40.
    assert numbers(decide(strategy, frame(), *work, used=69, now=10.0)) == [5, 4]
    assert numbers(decide(made(), frame(), *work, used=74)) == [5, 4, 3, 2]


def test_the_master_of_an_application_goes_last() -> None:
    masters = [ran(1, 4, 0), ran(1, 1, 0, attempt=2)]
    assert numbers(decide(made(), frame(), *masters, ran(7, 2, 4), used=69)) == [7, 1]


def test_no_more_is_ended_than_is_missing() -> None:
    work = [ran(number, 1, 1) for number in range(2, 20)]
    assert numbers(decide(made(), frame(), *work, used=67)) == []
    assert len(decide(made(), frame(), *work, used=68)) == 2
    assert len(decide(made(lower_percent=60), frame(), *work, used=70)) == 10


def test_what_is_about_to_end_counts() -> None:
    strategy = made()
    work = [ran(2, 1), ran(3, 1), ran(4, 1)]
    first = evicted(decide(strategy, frame(), *work, used=68))
    seen = view(frame(), *work, memory_bytes=68 * GIB, evictions=dict.fromkeys(first, 0.0))
    assert strategy.decide(seen, 1.0) == []
    leaving = pod("batch", QoSClass.BE, memory_bytes=2 * GIB)
    seen = view(frame(), *work, leaving, memory_bytes=68 * GIB, evictions={leaving.path: 0.0})
    assert made().decide(seen, 1.0) == []


def test_a_refused_container_gives_way_to_the_next() -> None:
    first, second, third = ran(2, 1, 0), ran(3, 1, 1), ran(4, 1, 2)
    seen = view(frame(), first, second, third, memory_bytes=68 * GIB)
    assert evicted(made().decide(seen, 0.0)) == [first.path, second.path]
    refused = replace(seen, evictions_refused=frozenset({first.path}))
    assert evicted(made().decide(refused, 0.0)) == [second.path, third.path]
    nothing_left = replace(seen, evictions_refused=frozenset({first.path, second.path, third.path}))
    assert made().decide(nothing_left, 0.0) == []


def test_the_dearest_container_counts_too_while_it_ends() -> None:
    cheap, dear = ran(2, 1, 0), ran(3, 2, 40)
    seen = view(frame(), cheap, dear, memory_bytes=68 * GIB, evictions={dear.path: 0.0})
    assert made().decide(seen, 1.0) == []


def test_containers_whose_memory_is_not_known_are_left() -> None:
    assert numbers(decide(made(), frame(), ran(2, None), ran(3, 1, None), used=70)) == [3]


def test_only_containers_of_the_application_are_ended() -> None:
    others = [
        app("daemon", QoSClass.BE, f"{FRAME}/daemon", memory_bytes=GIB),
        replace(ran(3), path="/elsewhere/container_1410901177871_0001_01_000003"),
        pod("batch", QoSClass.BE, memory_bytes=GIB),
    ]
    assert decide(made(), frame(), *others, used=90) == []


def test_without_the_nodes_memory_nothing_is_concluded() -> None:
    strategy = made()
    assert decide(strategy, frame(), ran(2), used=None) == []
    assert strategy.silent


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param([], id="no-application"),
        pytest.param([app("hadoop-yarn", QoSClass.LS, FRAME), ran(2)], id="not-best-effort"),
        pytest.param([app("other", QoSClass.BE, FRAME), ran(2)], id="other-application"),
        pytest.param([frame(qos_source=QoSSource.SETTINGS), ran(2)], id="by-rule"),
        pytest.param([frame(qos_source=QoSSource.KUBERNETES), ran(2)], id="by-place"),
    ],
)
def test_an_application_that_is_not_there_is_a_problem(groups: list[Group]) -> None:
    strategy = made()
    assert decide(strategy, *groups, used=90) == []
    assert "hadoop-yarn" in strategy.problems["application"]


def test_a_frame_elsewhere_has_the_limits_of_best_effort_pods() -> None:
    limited = directory(BEST_EFFORT, knobs={Knob.CPU_MAX: "250000 100000", Knob.CPUSET_CPUS: "0-3"})
    elsewhere = frame("/hadoop-yarn")
    wanted = settings(decide(made(), limited, elsewhere, used=10))
    assert wanted == {
        ("/hadoop-yarn", Knob.CPU_MAX): "250000 100000",
        ("/hadoop-yarn", Knob.CPUSET_CPUS): "0-3",
    }
    open_ended = directory(BEST_EFFORT, knobs={Knob.CPU_MAX: "max 100000", Knob.CPUSET_CPUS: ""})
    assert decide(made(), open_ended, elsewhere, used=10) == []


def test_a_frame_below_the_directory_is_limited_with_it() -> None:
    limited = directory(BEST_EFFORT, knobs={Knob.CPU_MAX: "250000 100000"})
    assert decide(made(), limited, frame(), used=10) == []


def test_it_is_off_by_default() -> None:
    assert YarnContainers().decide(view(frame(), ran(2), memory_bytes=99 * GIB), 0.0) == []


def test_a_level_above_the_threshold_is_refused() -> None:
    document = {"extensions": {"yarn_containers": {"memoryEvictLowerPercent": 70}}}
    with pytest.raises(SettingsError, match="must be below"):
        settings_of(YarnContainersSettings, "extensions.yarn_containers", document, "file")


@given(
    st.lists(st.tuples(st.integers(1, 9), st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 4)), max_size=8),
    st.integers(0, 100),
)
def test_it_never_ends_more_than_the_last_that_is_needed(listed: list[tuple[int, int | None, int]], used: int) -> None:
    work = [ran(number, gib, cores, attempt) for attempt, (number, gib, cores) in enumerate(listed, start=1)]
    ended = set(evicted(decide(made(), frame(), *work, used=used)))
    sizes = [each.memory_bytes or 0 for each in work if each.path in ended]
    missing = (used - 66) * GIB if used >= 68 else 0
    assert sum(sizes) - max(sizes, default=0) <= missing
    assert all(sizes)
