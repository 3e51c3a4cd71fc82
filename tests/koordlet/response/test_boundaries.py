"""Culprits below a directory of another user are that directory, together."""

from dataclasses import replace

import numpy as np

from api.verdicts import Culprit, How
from koordlet.response.observation import Observation
from koordlet.response.policy import ResponsePolicy
from tests.frames import cgroup_info
from tests.verdicts import make_verdict

OWNERS = {"/shop": 0, "/batch": 0, "/batch/user": 1000, "/batch/user/a": 1000, "/batch/user/a/b": 0, "/batch/user/c": 0}
CLASSES = {"/shop": "LS", "/batch": "BE"}


def observation(*culprits: tuple[str, float]) -> Observation:
    infos = tuple(
        replace(cgroup_info(number, path, qos=CLASSES.get(path, "")), owner_uid=owner)
        for number, (path, owner) in enumerate(OWNERS.items(), 1)
    )
    found = tuple(Culprit(path=path, share=share, how=How.DIRECT) for path, share in culprits)
    verdict = make_verdict(victim="/shop", resource="cpu", lost=0.5, culprits=found)
    zero = np.zeros(len(infos))
    return Observation(
        now_seconds=1.0,
        cgroups=infos,
        verdicts=(verdict,),
        lost={"cpu": np.full(len(infos), 0.5)},
        throttled=zero,
        cpu_cores=zero + 1.0,
        memory_bytes=zero,
        io_bytes_per_second=zero,
        turnaround_seconds=zero * np.nan,
    )


def test_the_boundary_is_the_first_directory_of_another_user() -> None:
    seen = observation()
    assert seen.boundary_of("/batch/user/a/b") == "/batch/user"
    assert seen.boundary_of("/batch") == "/batch"
    assert seen.boundary_of("[kernel]") == "[kernel]"


def test_small_culprits_below_a_boundary_are_one_that_counts() -> None:
    """Each alone is below the share that counts, and none of their own directories is written."""
    policy = ResponsePolicy()
    intents = policy.step(observation(("/batch/user/a", 0.06), ("/batch/user/a/b", 0.06), ("/batch/user/c", 0.06)))
    assert {intent.target for intent in intents} == {"/batch"}, "the weight that competes with the shop's"
    assert list(policy.active_rungs) == [("/batch/user", "cpu")]
