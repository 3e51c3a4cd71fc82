"""The ledger of lost time."""

import numpy as np

from api.loss import LOSS_CAUSES, lost_ns, total_lost_ns
from api.metrics import BY_COLUMN, WAIT_CAUSES
from api.window import Window
from tests.frames import make_frame


def test_causes_are_summed_by_name_and_unmeasured_ones_are_absent() -> None:
    cgroups = {1: "/a"}
    columns = {"cpu.wait_neighbour_ns": [7], "cpu.irq_ns": [2], "cpu.softirq_ns": [3]}
    zero = {name: [0] for name in columns}
    ledger = lost_ns(Window([make_frame(0, cgroups, zero), make_frame(1, cgroups, columns)]).delta())
    assert {name: column.tolist() for name, column in ledger.items()} == {"cpu:neighbour": [7.0], "cpu:irq": [5.0]}
    assert total_lost_ns(ledger).tolist() == [12.0]
    assert np.size(total_lost_ns({})) == 0


def test_every_cause_names_known_columns_and_every_wait_is_in_the_ledger() -> None:
    named = {column for cause in LOSS_CAUSES for column in cause.columns}
    assert named <= set(BY_COLUMN)
    assert {f"cpu.wait_{cause}_ns" for cause in WAIT_CAUSES} <= named
