"""Programs that fit a kernel, and the spelling of drop reasons. Needs no kernel."""

from typing import cast

import pytest

from probes.net import REASON_WIDTH, Net, reason_name
from probes.probe import Kernel


class FakeBtf:
    def __init__(self, tracepoints: dict[str, int]) -> None:
        self._tracepoints = tracepoints

    def has_tracepoint(self, name: str) -> bool:
        return name in self._tracepoints

    def tracepoint_arguments(self, name: str) -> tuple[str, ...]:
        return ("int",) * self._tracepoints.get(name, 0)


class FakeKernel:
    def __init__(self, **tracepoints: int) -> None:
        self.btf = FakeBtf(tracepoints)


@pytest.mark.parametrize(
    ("tracepoints", "expected"),
    [
        ({"tcp_retransmit_skb": 2, "kfree_skb": 3}, ["on_retransmit", "on_drop"]),
        (
            {"tcp_retransmit_skb": 2, "kfree_skb": 4, "sk_data_ready": 1},
            ["on_retransmit", "on_drop_received", "on_data"],
        ),
        (
            {"tcp_retransmit_skb": 3, "kfree_skb": 4, "sk_data_ready": 1},
            ["on_retransmit_result", "on_drop_received", "on_data"],
        ),
    ],
    ids=["6.1", "6.12", "6.18"],
)
def test_variants_follow_the_tracepoints_arguments(tracepoints: dict[str, int], expected: list[str]) -> None:
    assert Net._variants(cast("Kernel", FakeKernel(**tracepoints))) == expected


def test_reasons_are_the_kernels_names_or_numbers() -> None:
    names = {65: "SKB_DROP_REASON_QDISC_OVERLIMIT", 1: "SKB_CONSUMED", 9: "SKB_DROP_REASON_" + "X" * 60}
    assert reason_name(65, names) == "qdisc_overlimit"
    assert reason_name(1, names) == "skb_consumed"
    assert reason_name(0x30002, names) == "0x30002"
    assert len(reason_name(9, names)) == REASON_WIDTH
