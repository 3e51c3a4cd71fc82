"""A victim of a disk that is busy with writes to swap: those who take pages are named, live and in a replay alike."""

from dataclasses import replace

import numpy as np
import pytest

from api.frame import CGROUP, Frame, Table, align
from api.verdicts import KERNEL, Verdict, VerdictState
from detector.judging.judge import Judge, JudgeSettings
from detector.recording.format import PREFIX_BYTES, prefix_of, unpack_block
from detector.recording.frames import FrameDecoder, FrameEncoder, essential
from probes.blockio import with_swap_out
from probes.page_shares import PageShares
from probes.pairs import PairLedger
from probes.swap_out import SWAP_OUT_ID, Pairs, SwapOut
from tests.detector.made_frames import BATCH, OTHER, WEB, Tick, frames

WAITED_NS = 400_000_000
"""A second, behind writes to swap."""


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def behind_swap_out(pages: dict[int, int]) -> list[Frame]:
    """Frames in which the one waits for a disk while others take so many pages a second; the first has no growth."""
    swap_out, shares, ledger = SwapOut(), PageShares(), PairLedger()
    swap_out.takers = shares
    made = []
    for second, frame in enumerate(frames([Tick({"blockio.excess_ns": {}})] * 4, (WEB, BATCH, OTHER))):
        shares.add(ids(*pages), ids(*pages.values()))
        waits = Pairs(ids(WEB.id), ids(SWAP_OUT_ID), ids(WAITED_NS if second else 0))
        ledger.add(*swap_out.named(waits, 1000 * second))
        queued = {"blockio.queue_ns": ids(WAITED_NS * second), "blockio.self_ns": ids(0)}
        dense = with_swap_out(Table({"cgroup": ids(WEB.id)}, queued), swap_out)
        columns = {**frame.tables[CGROUP].columns, **align(frame.cgroup.ids, dense)}
        tables = {CGROUP: Table(frame.tables[CGROUP].keys, columns), "blockio.blame": ledger.table("blockio.blame_ns")}
        made.append(replace(frame, tables=tables))
    return made


def opened(made: list[Frame]) -> Verdict:
    judge = Judge(JudgeSettings())
    (verdict,) = [v for frame in made for v in judge.step(frame) if v.state is VerdictState.OPEN]
    return verdict


def test_the_takers_of_pages_are_named_and_ones_own_part_is_no_loss() -> None:
    verdict = opened(behind_swap_out({WEB.id: 100, BATCH.id: 600, OTHER.id: 300}))
    assert (verdict.victim, verdict.resource) == (WEB.path, "blockio")
    assert verdict.lost_seconds_per_second == pytest.approx(0.36)
    named = {culprit.path: culprit.share for culprit in verdict.culprits}
    assert named == pytest.approx({BATCH.path: 2 / 3, OTHER.path: 1 / 3})


def test_where_no_page_is_counted_the_kernel_is_named() -> None:
    assert [culprit.path for culprit in opened(behind_swap_out({})).culprits] == [KERNEL]


def test_a_replay_says_the_same() -> None:
    live = [essential(frame) for frame in behind_swap_out({BATCH.id: 600, OTHER.id: 300})]
    encoder, decoder = FrameEncoder(), FrameDecoder()
    again = []
    for frame in live:
        block = encoder.encode(frame)
        kind, _length, checksum = prefix_of(block[:PREFIX_BYTES])
        again.append(decoder.decode(unpack_block(kind, block[PREFIX_BYTES:], checksum)))
    assert opened(again) == opened(live)
