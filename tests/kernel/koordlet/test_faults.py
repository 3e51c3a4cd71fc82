"""A few of each fault that `python -m bench.faults` brings by hundreds: restored in time and once, without a person."""

from pathlib import Path

import pytest

from bench.faults.rounds import KINDS, LIMIT_SECONDS, SINKS, Outcome, is_possible, play, staged

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

ROUNDS = 3
STEPS = 3
"""Steps of a tick that fail in turn with the sinks."""


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_restored_once(kind: str, tmp_path: Path) -> None:
    obstacle = is_possible()
    if obstacle:
        pytest.skip(obstacle)
    outcome = Outcome(kind)
    with staged(tmp_path, 2026, kind) as scene:
        for number in range(len(SINKS) + STEPS if kind == "sink" else ROUNDS):
            play(scene, kind, number, outcome)
    print(f"{kind}: {outcome.set_attributes} attributes, {max(outcome.seconds):.2f} s of {LIMIT_SECONDS} s")
    assert outcome.wrong == []
    assert outcome.set_attributes > len(outcome.seconds)
