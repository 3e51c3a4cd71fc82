"""Correlation: second, labelled, and silent without contrast."""

from collections.abc import Sequence

import numpy as np
import pytest

from api.verdicts import How, Verdict
from api.window import Window
from detector.attribution import Past, attribute
from detector.engine import Engine
from detector.rules import Rule
from detector.symptom import discover_symptoms
from detector.view import View
from tests.frames import make_frame

PATHS = {1: "/web", 2: "/flood", 3: "/steady", 4: "/idle"}
RULE = Rule(name="net", any_of=("network_delay",), threshold=0.1, ticks=1, of_ticks=1, cooldown_seconds=0)


def judge(losses: Sequence[float], packets: Sequence[Sequence[int]]) -> list[Verdict]:
    """Verdicts over ticks of one second; `/web` loses, `packets` has each cgroup's of every tick."""
    delay = np.concatenate([[0], np.cumsum(np.array(losses) * 1e9)])
    sent = np.vstack([np.zeros(4), np.cumsum(np.array(packets), axis=0)])
    made = []
    for t in range(len(delay)):
        columns = {"net.qdisc_delay_ns": [delay[t], 0, 0, 0], "net.qdisc_packets": sent[t].tolist()}
        made.append(make_frame(t, PATHS, columns))
    engine = Engine([RULE])
    found = [engine.step(Window(made[: t + 1]), made[t].monotonic_ns) for t in range(1, len(made))]
    return found[-1]


def test_the_one_that_goes_with_the_loss_is_named_and_labelled() -> None:
    losses = [0, 0, 0, 0, 0, 0, 0, 0.9]
    packets = [[10, 900 if lost else 0, 300, 0] for lost in losses]
    (verdict,) = judge(losses, packets)
    assert [(c.path, c.how) for c in verdict.culprits] == [("/flood", How.CORRELATED)]
    assert verdict.culprits[0].share == pytest.approx(0.75)
    assert verdict.confidence == 0.0


@pytest.mark.parametrize(
    ("losses", "flood"),
    [
        pytest.param([0, 0, 0, 0, 0, 0, 0, 0.9], 300, id="steady-neighbours"),
        pytest.param([0, 0, 0, 0, 0, 0, 0, 0.9], 0, id="nobody-does-anything"),
    ],
)
def test_nobody_is_blamed_for_what_does_not_go_with_the_loss(losses: Sequence[float], flood: int) -> None:
    (verdict,) = judge(losses, [[10, flood, flood, 0] for _ in losses])
    assert verdict.culprits == ()


@pytest.mark.parametrize(
    ("lost", "blamed"),
    [
        pytest.param([0.9] * 8, False, id="no-calm-tick-to-compare-with"),
        pytest.param([0.0, 0.0, 0.0, 0.9], False, id="too-few-ticks"),
        pytest.param([0.0] * 7 + [0.9], True, id="contrast"),
    ],
)
def test_correlation_needs_contrast(lost: list[float], blamed: bool) -> None:
    columns = ("net.qdisc_delay_ns", "net.qdisc_packets")
    made = [make_frame(t, PATHS, {columns[0]: [t * 9 * 10**8, 0, 0, 0], columns[1]: [0] * 4}) for t in (0, 1)]
    symptom = discover_symptoms()["network_delay"]
    view = View(Window(made), symptom.columns)
    signal = symptom.sense(view)
    assert signal is not None
    activity = np.outer(np.array(lost), [0.0, 100.0, 0.0, 0.0])
    found = attribute(view, 0, symptom=symptom, signal=signal, past=Past(np.array(lost), activity, 0.1))
    assert [c.path for c in found.culprits] == (["/flood"] if blamed else [])
