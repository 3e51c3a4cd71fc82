"""IrqTheft: the loss of one tick."""

import pytest

from detector.symptoms.irq_theft import IrqTheft
from tests.detector.symptoms.ticks import MS, lost


def test_hard_and_soft_interrupts_count() -> None:
    grown = {"cpu.irq_ns": 30 * MS, "cpu.softirq_ns": 40 * MS}
    assert lost(IrqTheft(), grown) == pytest.approx(0.07)


def test_interrupts_for_own_packets_are_taken_off() -> None:
    grown = {"cpu.irq_ns": 30 * MS, "cpu.softirq_ns": 40 * MS, "net.softirq_own_ns": 30 * MS}
    assert lost(IrqTheft(), grown) == pytest.approx(0.04)


def test_own_traffic_is_no_theft() -> None:
    grown = {"cpu.softirq_ns": 250 * MS, "net.softirq_own_ns": 255 * MS}
    assert lost(IrqTheft(), grown) == pytest.approx(0.0)
