"""What the response sees of block IO in a window."""

import pytest

from api.window import Window
from koordlet.response.sight import Reach, Sight, sight
from tests.frames import make_frame

PATHS = {11: "/online/web", 12: "/batch/hog"}


def seen(**columns: list[int]) -> Sight:
    """A tick of two seconds in which the columns grew by so much."""
    grown = {f"blockio.{name}": values for name, values in columns.items()}
    nothing = {name: [0] * len(PATHS) for name in grown}
    window = Window([make_frame(1.0, PATHS, nothing), make_frame(3.0, PATHS, grown)])
    return sight(window, window.delta(), (), Reach())


def test_waiting_behind_own_io_is_no_loss_to_others() -> None:
    tick = seen(queue_ns=[10**9, 0], excess_ns=[10**9, 0], self_ns=[15 * 10**8, 0])
    assert tick.lost["blockio"].tolist() == [0.25, 0.0]


def test_where_own_io_is_not_told_apart_all_of_it_counts() -> None:
    assert seen(queue_ns=[10**9, 0], excess_ns=[0, 0]).lost["blockio"].tolist() == [0.5, 0.0]


def test_service_is_what_the_disk_took_without_what_others_cost() -> None:
    tick = seen(device_ns=[10**9, 0], excess_ns=[4 * 10**8, 0])
    assert tick.io_service == pytest.approx([0.3, 0.0])
    assert seen(queue_ns=[1, 1]).io_service is None
