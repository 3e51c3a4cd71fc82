"""QoS classes, priority bands, protection."""

import pytest

from api.qos import (
    PROTECTED_RANK,
    SENSITIVE_RANK,
    SYSTEM_CRITICAL_PRIORITY,
    QoSClass,
    is_protected,
    protection_rank,
)


def test_classes_rank_from_best_effort_to_system() -> None:
    assert sorted(QoSClass, key=protection_rank) == [
        QoSClass.BE,
        QoSClass.NONE,
        QoSClass.LS,
        QoSClass.LSR,
        QoSClass.LSE,
        QoSClass.SYSTEM,
    ]


@pytest.mark.parametrize("qos", [pytest.param(qos, id=qos.name) for qos in QoSClass])
def test_thresholds_split_the_classes(qos: QoSClass) -> None:
    rank = protection_rank(qos)
    assert is_protected(qos) == (rank >= PROTECTED_RANK) == (qos in {QoSClass.LSR, QoSClass.LSE, QoSClass.SYSTEM})
    assert (rank >= SENSITIVE_RANK) == (qos.latency_sensitive or qos is QoSClass.SYSTEM)


@pytest.mark.parametrize("qos", [pytest.param(qos, id=qos.name) for qos in QoSClass])
def test_a_pod_that_is_critical_to_the_system_is_protected_and_ranks_no_lower_than_its_class(qos: QoSClass) -> None:
    assert is_protected(qos, SYSTEM_CRITICAL_PRIORITY)
    assert protection_rank(qos, SYSTEM_CRITICAL_PRIORITY) == max(protection_rank(qos), PROTECTED_RANK)
    for priority in (None, 0, SYSTEM_CRITICAL_PRIORITY - 1):
        assert protection_rank(qos, priority) == protection_rank(qos)
