"""Records of stacks: waits that go on."""

import numpy as np

from probes.stacks import KEY_RECORD, TOTAL_RECORD, WAIT_RECORD, SampleKind, with_open_waits


def test_waits_that_go_on_count_up_to_now() -> None:
    keys, totals = np.zeros(1, dtype=KEY_RECORD), np.array([(3, 900)], dtype=TOTAL_RECORD)
    waits = np.zeros(3, dtype=WAIT_RECORD)
    waits["since_ns"] = 400, 0, 2_000  # the second runs, the third began after the end
    waits["key"]["tgid"] = 7, 8, 9
    waits["key"]["kind"] = SampleKind.BLOCKED
    found, sums = with_open_waits(keys, totals, waits, now_ns=1_000)
    assert found["tgid"].tolist() == [0, 7]
    assert sums.tolist() == [(3, 900), (1, 600)]
