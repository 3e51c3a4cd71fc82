"""A verdict that blames the kernel says what its threads did meanwhile, live and in a replay alike."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from api.frame import HOST, KERNEL_ID, Frame, Table
from api.verdict_text import in_words
from api.verdicts import KERNEL, Verdict, VerdictState
from detector.judging.judge import Judge, JudgeSettings
from detector.recording.format import PREFIX_BYTES, prefix_of, unpack_block
from detector.recording.frames import FrameDecoder, FrameEncoder, essential
from tests.detector.made_frames import BATCH, WEB, Tick, contention, frames

RECLAIM = {"background_reclaim": 0.6, "soft_interrupts": 0.2}
EVEN = {"background_reclaim": 0.3, "soft_interrupts": 0.3, "rcu": 0.3}


def with_work(made: list[Frame], cpus: Mapping[str, float]) -> list[Frame]:
    """The kernel's threads use so many CPUs from the first frame on."""
    found = []
    for number, frame in enumerate(made):
        columns = {f"kernelwork.{work}_ns": np.array([int(used * 1e9) * number]) for work, used in cpus.items()}
        host = Table({}, {**columns, "hostwide.memory_free_bytes": np.array([1e9])})
        found.append(replace(frame, tables={**frame.tables, HOST: host}))
    return found


def behind_the_kernel() -> list[Frame]:
    tick = Tick({"cpu.wait_kernel_ns": {1: 3e8}, "cpu.wait_neighbour_ns": {}}, {(1, KERNEL_ID): 0.3})
    return frames([tick] * 3, (WEB, BATCH))


def opened(made: list[Frame]) -> Verdict:
    judge = Judge(JudgeSettings())
    (verdict,) = [v for frame in made for v in judge.step(frame) if v.state is VerdictState.OPEN]
    return verdict


@pytest.mark.parametrize(
    ("cpus", "words"),
    [
        pytest.param(RECLAIM, "0.30 to the kernel (background reclaim)", id="most-of-it-is-one-kind"),
        pytest.param(EVEN, "0.30 to the kernel", id="nothing-stands-out"),
        pytest.param({"other": 0.6}, "0.30 to the kernel", id="no-name-for-it"),
        pytest.param({}, "0.30 to the kernel", id="not-measured"),
    ],
)
def test_the_kernel_is_named_by_what_its_threads_did(cpus: Mapping[str, float], words: str) -> None:
    verdict = opened(with_work(behind_the_kernel(), cpus))
    assert verdict.culprits[0].path == KERNEL
    assert in_words(verdict).endswith(words)
    told = {name: used for name, used in verdict.evidence.items() if name.startswith("kernel_threads.")}
    assert told == pytest.approx({f"kernel_threads.{work}": used for work, used in cpus.items()})


def test_a_verdict_about_a_neighbour_does_not_speak_of_the_kernel() -> None:
    verdict = opened(with_work(frames([contention()] * 3, (WEB, BATCH)), RECLAIM))
    assert [name for name in verdict.evidence if name.startswith("kernel_threads.")] == []


def test_a_replay_says_the_same() -> None:
    live = [essential(frame) for frame in with_work(behind_the_kernel(), RECLAIM)]
    encoder, decoder = FrameEncoder(), FrameDecoder()
    again = []
    for number, frame in enumerate(live):
        block = encoder.encode(frame)
        kind, _length, checksum = prefix_of(block[:PREFIX_BYTES])
        again.append(decoder.decode(unpack_block(kind, block[PREFIX_BYTES:], checksum)))
        assert set(again[number].tables[HOST].columns) == {f"kernelwork.{work}_ns" for work in RECLAIM}
    assert opened(again) == opened(live)


def test_a_resumed_judge_knows_what_the_threads_did_before() -> None:
    made = with_work(behind_the_kernel(), RECLAIM)
    judge = Judge(JudgeSettings())
    for frame in made[:2]:
        judge.step(frame)
    resumed = Judge.resume(JudgeSettings(), judge.checkpoint())
    assert [v.evidence for v in resumed.step(made[2])] == [v.evidence for v in judge.step(made[2])]
