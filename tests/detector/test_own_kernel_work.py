"""Waits for kernel threads that handle packets of the cgroup that waits, or pass its block IO on."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from api.frame import HOST, KERNEL_ID, Frame, Table
from api.window import Window
from detector.judging.judge import Judge, JudgeSettings, judged_columns
from detector.view import CPU_BLAME, View
from tests.detector.made_frames import BATCH, WEB, Tick, frames

MS = 10**6


def waiting(
    deferred_ms: Mapping[int, float],
    kernel_ms: float,
    ticks: int = 1,
    *,
    ios: Mapping[int, float] | None = None,
    host_ios: float = 0,
    kilobytes: Mapping[int, float] | None = None,
    disk_ms: float = 0,
) -> list[Frame]:
    """/web waits 0.3 s/s behind the kernel and 0.15 behind /batch; the kernel's threads use so much of a CPU, and
    `disk_ms` more for block devices.

    Of that they receive packets of each cgroup for so long; of `host_ios` block IO requests each has so many, of 4 KiB
    where `kilobytes` does not say how much they read; the kernel has the rest, of 4 KiB.
    """
    columns: dict[str, Mapping[int, float]] = {
        "cpu.wait_kernel_ns": {1: 300 * MS},
        "cpu.wait_neighbour_ns": {1: 150 * MS},
    }
    if deferred_ms:
        columns["net.softirq_deferred_ns"] = {one: amount * MS for one, amount in deferred_ms.items()}
    if ios is not None:
        read = {one: 4 * count for one, count in ios.items()} if kilobytes is None else kilobytes
        columns["blockio.ios"] = ios
        columns["blockio.read_bytes"] = {one: 1024 * each for one, each in read.items()}
        columns["blockio.write_bytes"] = {}
        host_bytes = 1024 * (sum(read.values()) + 4 * max(host_ios - sum(ios.values()), 0))
    made = frames([Tick(columns, {(1, KERNEL_ID): 0.3, (1, 2): 0.15})] * ticks, (WEB, BATCH))
    growth = {"kernelwork.soft_interrupts_ns": kernel_ms * MS, "kernelwork.block_devices_ns": disk_ms * MS}
    growth |= {"blockio.host_ios": host_ios, "blockio.host_bytes": host_bytes} if ios is not None else {}
    return [
        replace(
            frame,
            tables={
                **frame.tables,
                HOST: Table({}, {name: np.array([int(each * number)]) for name, each in growth.items()}),
            },
        )
        for number, frame in enumerate(made)
    ]


@pytest.mark.parametrize(
    ("deferred_ms", "kernel_ms", "left"),
    [
        pytest.param({1: 90}, 100, 0.03, id="its-own"),
        pytest.param({1: 50, 2: 50}, 200, 0.225, id="a-part"),
        pytest.param({1: 120}, 100, 0.0, id="more-than-the-threads-ran"),
        pytest.param({2: 90}, 100, 0.3, id="of-others"),
        pytest.param({}, 100, 0.3, id="not-measured"),
        pytest.param({1: 90}, 0, 0.3, id="no-thread-ran"),
    ],
)
def test_the_kernel_is_blamed_for_others_packets_only(
    deferred_ms: Mapping[int, float], kernel_ms: float, left: float
) -> None:
    view = View(Window(waiting(deferred_ms, kernel_ms)), judged_columns())
    blame = view.blame(CPU_BLAME)
    assert blame is not None and view.cpu_contention is not None
    found = dict(zip(blame.culprits.tolist(), blame.amounts.tolist(), strict=True))
    assert found == pytest.approx({2: 0.15, **({KERNEL_ID: left} if left else {})})
    assert view.cpu_contention[0] == pytest.approx(left + 0.15)


@pytest.mark.parametrize(
    ("ios", "kilobytes", "host_ios", "others_ms", "left"),
    [
        pytest.param({1: 1000}, None, 1000, 0, 0.0, id="its-own"),
        pytest.param({1: 900, 2: 100}, None, 1000, 0, 0.03, id="most-its-own"),
        pytest.param({1: 10, 2: 990}, None, 1000, 0, 0.297, id="of-others"),
        pytest.param({1: 900, 2: 100}, {1: 10, 2: 990}, 1000, 0, 0.297, id="many-small-ones-beside-others-large-ones"),
        pytest.param({1: 100, 2: 900}, {1: 990, 2: 10}, 1000, 0, 0.27, id="large-ones-beside-others-small-ones"),
        pytest.param({1: 1000}, {}, 1000, 0, 0.0, id="flushes-alone"),
        pytest.param({1: 100}, None, 1000, 0, 0.27, id="the-kernel-writes-for-others"),
        pytest.param({1: 1000}, None, 1000, 100, 0.15, id="beside-other-work-of-the-kernel"),
        pytest.param({1: 1000}, None, 0, 0, 0.3, id="no-requests-of-the-host"),
        pytest.param({1: 2000}, None, 1000, 100, 0.15, id="more-than-the-host"),
        pytest.param({}, None, 1000, 0, 0.3, id="none"),
        pytest.param(None, None, 0, 0, 0.3, id="not-measured"),
    ],
)
def test_the_kernel_is_blamed_for_others_block_io_only(
    ios: Mapping[int, float] | None,
    kilobytes: Mapping[int, float] | None,
    host_ios: float,
    others_ms: float,
    left: float,
) -> None:
    made = waiting({}, others_ms, ios=ios, host_ios=host_ios, kilobytes=kilobytes, disk_ms=100)
    view = View(Window(made), judged_columns())
    blame = view.blame(CPU_BLAME)
    assert blame is not None and view.cpu_contention is not None
    found = dict(zip(blame.culprits.tolist(), blame.amounts.tolist(), strict=True))
    assert found == pytest.approx({2: 0.15, **({KERNEL_ID: left} if left else {})})
    assert view.cpu_contention[0] == pytest.approx(left + 0.15)


def test_own_packets_and_own_block_io_add_up() -> None:
    made = waiting({1: 50}, 100, ios={1: 500}, host_ios=1000, disk_ms=100)
    assert View(Window(made), judged_columns()).cpu_contention == pytest.approx([0.5 * 0.3 + 0.15, 0.0])


def test_a_disk_user_that_waits_for_its_own_requests_has_no_neighbour() -> None:
    judge = Judge(JudgeSettings())
    made = waiting({}, 0, ticks=4, ios={1: 1000}, host_ios=1000, disk_ms=100)
    told = [verdict for frame in made for verdict in judge.step(frame)]
    assert [verdict.lost_seconds_per_second for verdict in told] == pytest.approx([0.15])
    assert [culprit.path for culprit in told[0].culprits] == ["/batch"]


def test_a_service_that_waits_for_its_own_packets_has_no_neighbour() -> None:
    judge = Judge(JudgeSettings())
    told = [verdict for frame in waiting({1: 100}, 100, ticks=4) for verdict in judge.step(frame)]
    assert [verdict.lost_seconds_per_second for verdict in told] == pytest.approx([0.15])
    assert [culprit.path for culprit in told[0].culprits] == ["/batch"]
