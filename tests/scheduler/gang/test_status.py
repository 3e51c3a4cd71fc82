"""Status of a PodGroup by its members, living and finished."""

from typing import Any

import msgspec
import pytest

from api.crds import PodGroup
from scheduler.cluster_state.podinfo import PodClasses
from scheduler.gang.ended import End
from scheduler.gang.gangs import Gang
from scheduler.gang.status import status_changes
from tests.schedobjects import pod

RUN, BOUND, QUEUED = "running", "bound", "queued"
DONE, BROKEN, NEVER = End("d", True, True), End("f", False, True), End("n", False, False)


def changes(phase: str, living: list[str], ended: list[End], **status: int) -> dict[str, Any]:
    """For a group of three; `living` tells where each living member is."""
    document = {"spec": {"minMember": 3}, "status": {"phase": phase, **status}}
    infos = [
        PodClasses().info(pod(f"p-{n}", phase="Running" if where == RUN else "Pending"))
        for n, where in enumerate(living)
    ]
    members = {info.key: info for info in infos}
    bound = {info.key for info, where in zip(infos, living, strict=True) if where != QUEUED}
    gang = Gang("default/g", members=set(members), bound=bound)
    return status_changes(msgspec.convert(document, PodGroup), gang, members=members, ended=ended, now=0.0)


@pytest.mark.parametrize(
    ("phase", "living", "ended", "expected"),
    [
        pytest.param("Running", [RUN] * 2, [DONE], ("Running", 3, 2, 1, 0), id="one succeeded"),
        pytest.param("Scheduled", [RUN] * 2, [DONE], ("Running", 3, 2, 1, 0), id="done before the others ran"),
        pytest.param("Running", [], [DONE] * 3, ("Finished", 3, 0, 3, 0), id="all succeeded"),
        pytest.param("Running", [RUN], [DONE] * 3, ("Finished", 4, 1, 3, 0), id="enough succeeded"),
        pytest.param("Pending", [], [DONE] * 3, ("Finished", 3, 0, 3, 0), id="from any phase"),
        pytest.param("Running", [RUN] * 2, [BROKEN], ("Failed", 3, 2, 0, 1), id="one failed"),
        pytest.param("Running", [], [DONE, DONE, BROKEN], ("Failed", 3, 0, 2, 1), id="the last failed"),
        pytest.param("Running", [RUN], [DONE] * 3 + [BROKEN], ("Finished", 5, 1, 3, 1), id="enough succeeded anyhow"),
        pytest.param("Scheduling", [QUEUED, RUN], [BROKEN], ("Scheduling", 2, 1, 0, 1), id="failed, too few ran"),
        pytest.param("Scheduling", [BOUND] * 2, [NEVER], ("Scheduling", 2, 0, 0, 1), id="failed without a node"),
        pytest.param("Scheduled", [], [DONE], ("Scheduling", 1, 0, 1, 0), id="a finished pod is still a pod"),
    ],
)
def test_finished_members_count(phase: str, living: list[str], ended: list[End], expected: tuple[Any, ...]) -> None:
    before = {"scheduled": -1, "running": -1, "succeeded": -1, "failed": -1}
    written = {"phase": phase} | changes(phase, living, ended, **before)
    assert tuple(written[name] for name in ("phase", "scheduled", "running", "succeeded", "failed")) == expected


@pytest.mark.parametrize("phase", ["Finished", "Failed"])
def test_a_life_that_is_over_is_not_written_to(phase: str) -> None:
    assert changes(phase, [RUN] * 3, [DONE, BROKEN]) == {}


def test_nothing_is_written_that_is_there_already() -> None:
    assert changes("Running", [RUN] * 2, [DONE], scheduled=3, running=2, succeeded=1) == {}
