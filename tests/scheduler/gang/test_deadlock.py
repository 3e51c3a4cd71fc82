"""Gangs that hold each other's room: which one is made whole, and which ones let go for it."""

from collections.abc import Sequence

import pytest

from scheduler.cluster_state.podinfo import PodClasses, PodInfo
from scheduler.gang.deadlock import HeldGroup, give_back
from tests.schedobjects import pod

CLASSES = PodClasses()


def infos(name: str, count: int) -> tuple[PodInfo, ...]:
    created = f"2026-01-01T00:00:{ord(name[0]) - ord('a'):02}Z"
    return tuple(CLASSES.info(pod(f"{name}-{number}", creation_timestamp=created)) for number in range(count))


def group(name: str, held: int = 1, missing: int = 1) -> HeldGroup:
    """A group that is the older the earlier its name is in the alphabet."""
    return HeldGroup(name, infos(f"{name}-held", held), infos(f"{name}-missing", missing))


def decided(groups: Sequence[HeldGroup], needs: dict[str, str]) -> tuple[str, str] | None:
    """The group that is made whole and those that let go, where each needs the places of some others."""

    def fits(pods: Sequence[PodInfo], without: Sequence[PodInfo]) -> bool:
        gone = {info.pod.metadata.name[0] for info in without}
        name = pods[0].pod.metadata.name[0]
        return name in needs and gone >= set(needs[name])

    found = give_back(groups, fits)
    return None if found is None else (found[0].id, "".join(sorted(each.id for each in found[1])))


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        pytest.param({"a": "b"}, ("a", "b"), id="an-older-one-needs-the-middle-one"),
        pytest.param({"a": "c"}, ("a", "c"), id="an-older-one-needs-the-youngest"),
        pytest.param({"a": "bc"}, ("a", "bc"), id="an-older-one-needs-both"),
        pytest.param({"a": "", "b": "c"}, ("b", "c"), id="the-oldest-has-room-as-it-is"),
        pytest.param({"a": ""}, None, id="none-needs-anything"),
        pytest.param({"b": "a", "c": "ab"}, None, id="older-ones-keep-what-they-hold"),
        pytest.param({}, None, id="nothing-helps"),
    ],
)
def test_no_group_lets_go_that_an_older_one_does_not_need(
    needs: dict[str, str], expected: tuple[str, str] | None
) -> None:
    assert decided([group("b"), group("c"), group("a")], needs) == expected


def test_many_groups_that_nothing_helps_are_not_tried_against_each_other() -> None:
    asked: list[int] = []

    def fits(pods: Sequence[PodInfo], without: Sequence[PodInfo]) -> bool:
        asked.append(len(without))
        return False

    assert give_back([group(name) for name in "abcdefghijklmnopqrst"], fits) is None
    assert len(asked) < 2 * 20
