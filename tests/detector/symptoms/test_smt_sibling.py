"""SmtSibling: the loss of one tick."""

import pytest

from detector.symptoms.smt_sibling import SmtSibling
from tests.detector.symptoms.ticks import MS, lost


def test_exposure_costs_an_assumed_part() -> None:
    grown = {"cpu.smt_foreign_ns": 400 * MS}
    assert lost(SmtSibling(), grown) == pytest.approx(0.14)


def test_cycles_per_instruction_tell_the_part() -> None:
    grown = {"cpu.smt_foreign_ns": 400 * MS, "pmu.cycles": 2000, "pmu.instructions": 1000}
    assert lost(SmtSibling(), grown) == pytest.approx(0.2)
