"""Values of the last ticks follow their cgroup, not their row."""

import numpy as np

from detector.ring import Ring


def ids(*numbers: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint64]]":
    return np.array(numbers, dtype=np.uint64)


def test_rows_follow_ids_and_newcomers_have_no_past() -> None:
    ring = Ring(3)
    ring.push(ids(5, 2), np.array([50.0, 20.0]))
    ring.push(ids(2, 9, 5), np.array([21.0, 90.0, 51.0]))
    np.testing.assert_array_equal(ring.series(0), [[20.0, np.nan, 50.0], [21.0, 90.0, 51.0]])


def test_it_forgets_the_oldest() -> None:
    ring = Ring(2)
    for value in (1.0, 2.0, 3.0):
        ring.push(ids(1), np.array([value]))
    assert ring.series(0).tolist() == [[2.0], [3.0]]


def test_cgroups_come_and_go_and_none_has_what_another_had() -> None:
    ring = Ring(4)
    past: list[dict[int, float]] = []
    for tick in range(400):
        alive = [1, *range(100 + tick, 100 + tick + 1 + tick % 90)]
        values = {identity: identity + tick / 1000 for identity in alive}
        ring.push(ids(*alive), np.array([list(values.values())]))
        past = [{each: value for each, value in before.items() if each in values} for before in past[-3:]] + [values]
        expected = [[values.get(identity, np.nan) for identity in alive] for values in past]
        np.testing.assert_array_equal(ring.series(0), expected)


def test_room_that_many_cgroups_took_is_given_back() -> None:
    ring = Ring(2)
    ring.push(ids(*range(1, 5001)), np.ones((1, 5000)))
    ring.push(ids(4999, 7), np.array([[2.0, 3.0]]))
    np.testing.assert_array_equal(ring.series(0), [[1.0, 1.0], [2.0, 3.0]])
    assert ring._values.shape[2] < 500


def test_a_ring_of_one_holds_the_newest() -> None:
    ring = Ring(1)
    for value in (1.0, 2.0):
        ring.push(ids(1), np.array([value]))
    assert ring.series(0).tolist() == [[2.0]]


def test_several_series_move_together() -> None:
    ring = Ring(2, width=2)
    ring.push(ids(5, 2), np.array([[50.0, 20.0], [-5.0, -2.0]]))
    ring.push(ids(2), np.array([[21.0], [-2.1]]))
    np.testing.assert_array_equal(ring.values, [[[20.0], [-2.0]], [[21.0], [-2.1]]])
    again = Ring(2, width=2)
    again.restore(ring.ids, ring.values)
    np.testing.assert_array_equal(again.values, ring.values)
