"""Recent frames: what older ones keep, and what they share."""

import numpy as np

from api.frame import CGROUP, HOST, CgroupInfo, Frame, Table
from koordlet.agent.frame_store import FrameStore, thin

IDS = np.arange(1, 4, dtype=np.uint64)
CGROUPS = tuple(CgroupInfo(number, f"/{number}", str(number)) for number in (1, 2, 3))


def frame(second: int, busy: int, ids: np.ndarray[tuple[int], np.dtype[np.uint64]] = IDS) -> Frame:
    columns = {
        "still": np.array([7.0, np.nan, 0.0]),
        "busy": np.full(3, busy, dtype=np.uint64),
        "histogram": np.zeros((3, 64), dtype=np.uint32),
    }
    tables = {
        CGROUP: Table({"cgroup": ids}, dict(columns)),
        HOST: Table({}, {"total": np.array([1])}),
        "pairs": Table({"cgroup": ids}, {"ns": np.ones(3)}),
    }
    read_ns = {name: np.array([float(second), np.nan, 1.0]) for name in ("still", "other")}
    return Frame(second * 10**9, second * 10**9, CGROUPS, tables, read_ns=read_ns)


def test_an_old_frame_keeps_plain_columns_and_those_of_the_host() -> None:
    kept = thin(frame(1, 5))
    assert set(kept.tables) == {CGROUP, HOST}
    assert set(kept.cgroup.columns) == {"still", "busy"}
    np.testing.assert_array_equal(kept.cgroup.columns["busy"], [5, 5, 5])


def test_what_stood_still_is_kept_once() -> None:
    before = thin(frame(1, 5))
    after = thin(frame(2, 6), before)
    assert after.cgroup.columns["still"] is before.cgroup.columns["still"]
    np.testing.assert_array_equal(after.cgroup.columns["busy"], [6, 6, 6])
    assert after.read_ns["still"] is after.read_ns["other"]
    np.testing.assert_array_equal(after.read_ns["still"], [2.0, np.nan, 1.0])


def test_a_column_of_another_length_is_not_taken_for_the_same() -> None:
    before = thin(frame(1, 5))
    fewer = Frame(2, 2, CGROUPS[:2], {CGROUP: Table({"cgroup": IDS[:2]}, {"still": np.array([7.0, np.nan])})})
    np.testing.assert_array_equal(thin(fewer, before).cgroup.columns["still"], [7.0, np.nan])


def test_the_newest_frames_are_whole_and_the_oldest_are_dropped() -> None:
    store = FrameStore(20.0, 1.0)
    for second in range(40):
        store.append(frame(second, second))
    window = store.window()
    assert window is not None
    frames = window.frames
    assert len(frames) == 21
    assert ["histogram" in each.cgroup.columns for each in frames] == [False] * 9 + [True] * 12
    assert [int(each.cgroup.columns["busy"][0]) for each in frames] == list(range(19, 40))
