"""Block IO in the response's observation of a window."""

from dataclasses import replace

import numpy as np
import pytest

from api.frame import Frame, Table
from api.window import Window
from koordlet.response.host_capabilities import HostCapabilities
from koordlet.response.observation import Observation, observe
from tests.frames import make_frame

PATHS = {11: "/online/web", 12: "/batch/hog"}


def seen(**columns: list[int]) -> Observation:
    """A tick of two seconds in which the columns grew by so much."""
    grown = {f"blockio.{name}": values for name, values in columns.items()}
    nothing = {name: [0] * len(PATHS) for name in grown}
    window = Window([make_frame(1.0, PATHS, nothing), make_frame(3.0, PATHS, grown)])
    return observe(window, window.delta(), (), HostCapabilities())


def test_waiting_behind_own_io_is_no_loss_to_others() -> None:
    tick = seen(queue_ns=[10**9, 0], excess_ns=[10**9, 0], self_ns=[15 * 10**8, 0])
    assert tick.lost["blockio"].tolist() == [0.25, 0.0]


def test_where_own_io_is_not_told_apart_all_of_it_counts() -> None:
    assert seen(queue_ns=[10**9, 0], excess_ns=[0, 0]).lost["blockio"].tolist() == [0.5, 0.0]


def test_service_is_what_the_disk_took_without_what_others_cost() -> None:
    tick = seen(device_ns=[10**9, 0], excess_ns=[4 * 10**8, 0])
    assert tick.io_service == pytest.approx([0.3, 0.0])
    assert seen(queue_ns=[1, 1]).io_service is None


def test_disks_between_two_are_those_that_both_used() -> None:
    def frame(seconds: float, moved: dict[tuple[int, int], int]) -> Frame:
        made = make_frame(seconds, PATHS, {"blockio.queue_ns": [0, 0]})
        keys = np.array(list(moved), dtype=np.uint64)
        columns = {
            "blockio.read_bytes": np.array(list(moved.values()), dtype=np.uint64),
            "blockio.write_bytes": np.zeros(len(moved), dtype=np.uint64),
        }
        table = Table({"cgroup": keys[:, 0], "device": keys[:, 1].astype(np.uint32)}, columns)
        return replace(made, tables={**made.tables, "blockio.device": table})

    loop, disk, other = 7 << 20 | 1, 254 << 20, 259 << 20 | 3
    before = {(11, loop): 5, (11, disk): 5, (12, loop): 5, (12, other): 5, (12, disk): 5}
    after = {(11, loop): 6, (11, disk): 6, (12, loop): 9, (12, other): 9, (12, disk): 5}
    window = Window([frame(1.0, before), frame(2.0, after)])
    tick = observe(window, window.delta(), (), HostCapabilities(disks=("7:1", "254:0", "259:3")))
    assert tick.disks_between("/batch/hog", "/online/web") == ("7:1",)
    assert tick.disks_between("/batch/hog", "/batch/hog") == ("7:1", "259:3")
    assert tick.disks_between("/batch/hog", "/nobody/knows") == ("7:1", "259:3")


def test_all_disks_are_meant_where_nobody_knows_better() -> None:
    tick = replace(seen(queue_ns=[0, 0]), capabilities=HostCapabilities(disks=("7:1", "254:0")))
    assert tick.disks_between("/batch/hog", "/online/web") == ("7:1", "254:0")


@pytest.mark.parametrize(("resource", "of"), [("cpu", "cpu"), ("network", "net")])
def test_blame_is_read_from_the_tables_of_two_frames_and_only_when_asked(resource: str, of: str) -> None:
    def frame(seconds: float, amounts: dict[tuple[int, int], int]) -> Frame:
        made = make_frame(seconds, PATHS, {"cpu.wait_neighbour_ns": [0, 0]})
        keys = np.array(list(amounts), dtype=np.uint64).reshape(-1, 2)
        columns = {f"{of}.blame_ns": np.array(list(amounts.values()), dtype=np.uint64)}
        table = Table({"cgroup": keys[:, 0], "culprit": keys[:, 1]}, columns)
        return replace(made, tables={**made.tables, f"{of}.blame": table})

    window = Window([frame(1.0, {(11, 12): 10**9}), frame(3.0, {(11, 12): 2 * 10**9})])
    tick = observe(window, window.delta(), (), HostCapabilities())
    assert tick.lost_to("/online/web", "/batch/hog", resource) == pytest.approx(0.5)
    assert tick.lost_to("/online/web", "/batch", resource) == pytest.approx(0.5)
    assert tick.lost_to("/batch/hog", "/online/web", resource) == 0.0
    assert tick.blame_of("memory") is None
