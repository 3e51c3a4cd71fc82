"""The self-test's comparison, on frames that are made up."""

from dataclasses import replace

import numpy as np
import pytest

from api.frame import Table
from api.plugin import Unsupported
from koordlet.self_test.results import Result, Status
from koordlet.self_test.trial import CGROUPS, Grown, _Done, compare
from tests.frames import make_frame

PATHS = {name: f"/koord-self-test-1/{name}" for name in CGROUPS}
IDS = {number + 10: path for number, path in enumerate(PATHS.values())}
SECOND = 10**9


def column(**values: int) -> list[int]:
    return [values.get(name, 0) for name in CGROUPS]


def results(
    columns: dict[str, list[int]],
    done: _Done,
    blame: dict[tuple[str, str], int] | None = None,
    **unsupported: Unsupported,
) -> dict[str, Result]:
    nothing = {name: [0] * len(CGROUPS) for name in columns}
    after = make_frame(10, IDS, columns)
    if blame:
        ids = {name: number + 10 for number, name in enumerate(CGROUPS)}
        victims, culprits = (np.array([ids[pair[side]] for pair in blame], dtype=np.uint64) for side in (0, 1))
        amounts = {"smt.blame_ns": np.array(list(blame.values()), dtype=np.uint64)}
        table = Table({"cgroup": victims, "culprit": culprits}, amounts)
        after = replace(after, tables={**after.tables, "smt.blame": table})
    grown = Grown(make_frame(0, IDS, nothing), after, PATHS)
    return {each.name: each for each in compare(grown, done, unsupported)}


def test_each_counter_is_held_against_its_own_stressor() -> None:
    columns = {
        "cpu.wait_ns": column(waiter=SECOND),
        "throttle.throttled_ns": column(limited=2 * SECOND),
        "memory.stall_own_limit_count": column(crowded=0),
        "blockio.read_bytes": column(disk=4096),
    }
    facts = {
        "waiter": {"wait_ns": SECOND, "wait_since_start_ns": SECOND},
        "limited": {},
        "crowded": {},
        "disk": {"bytes": 8192},
    }
    found = results(columns, _Done(facts, throttled_ns=2 * SECOND, times_at_limit=7))
    assert found["run queue"].status is Status.RIGHT
    assert found["throttle"].status is Status.RIGHT
    assert found["memory reclaim"].status is Status.WRONG
    assert found["block IO"].status is Status.WRONG


@pytest.mark.parametrize(
    ("shared_seconds", "status"),
    [
        pytest.param(1.9, Status.RIGHT, id="nearly-all-of-both"),
        pytest.param(0.5, Status.WRONG, id="less-than-must-be"),
        pytest.param(2.6, Status.WRONG, id="more-than-one-ran"),
    ],
)
def test_two_that_share_a_core_are_held_against_what_each_ran(shared_seconds: float, status: Status) -> None:
    facts = {name: {"cpu_ns": 2 * SECOND} for name in ("thread", "sibling")}
    shared = {("thread", "sibling"): int(shared_seconds * SECOND), ("thread", "walker"): SECOND}
    found = results({"cpu.smt_foreign_ns": column(thread=1)}, _Done(facts), blame=shared)
    assert found["SMT siblings"].status is status


def test_a_core_that_the_process_may_not_use_is_told() -> None:
    done = _Done(failures={"sibling": "no core has both of its threads among the CPUs that this process may use"})
    found = results({"cpu.smt_foreign_ns": column()}, done)["SMT siblings"]
    assert found.status is Status.ABSENT
    assert "both of its threads" in found.reason


def test_what_the_host_lacks_has_its_reason() -> None:
    refused = Unsupported("the CPU or kernel has no resource control", "needs Intel RDT")
    found = results({"cpu.wait_ns": column()}, _Done({"walker": {"bytes": 1, "cpu_ns": 1}}), resctrl=refused)
    assert found["memory bandwidth"].status is Status.ABSENT
    assert "resource control" in found["memory bandwidth"].reason
    assert found["memory bandwidth"].remedy == "needs Intel RDT"
    assert found["PMU cycles"].reason == "its columns are not measured here"


def test_a_stressor_that_failed_is_no_fault_of_the_counter() -> None:
    done = _Done(failures={"disk": "[Errno 22] Invalid argument", "cpu": "no such file"})
    found = results({"cpu.wait_ns": column(), "blockio.read_bytes": column()}, done)
    assert "Invalid argument" in found["block IO"].reason
    assert {each.status for each in found.values()} == {Status.ABSENT}


def test_trips_of_other_pairs_do_not_count() -> None:
    ids = {name: number + 10 for number, name in enumerate(CGROUPS)}
    pair = (ids["waiter"], ids["contender"])
    columns = {"cpu.wait_ns": column()}
    assert results(columns, _Done(trips=[pair]))["tripwire"].status is Status.RIGHT
    assert results(columns, _Done(trips=[pair[::-1]]))["tripwire"].status is Status.WRONG


def test_a_file_that_is_not_on_a_disk_is_told() -> None:
    found = results({"blockio.read_bytes": column()}, _Done({"disk": {"bytes": 0}}))
    assert found["block IO"].status is Status.ABSENT
    assert "--directory" in found["block IO"].remedy
