"""Verdicts as lines: JSON on a descriptor, sentences in the log."""

import json
import logging
import os
from collections import Counter

import pytest

from api.window import Window
from koordlet.agent.sinks import ReaderGone
from koordlet.outputs.verdict_lines import json_lines, log_lines
from koordlet.tick import Tick
from tests.frames import make_frame
from tests.verdicts import make_verdict

TICK = Tick.of(Window([make_frame(second, {1: "/web"}, {}) for second in (1.0, 2.0)]), [make_verdict(victim="/web")])


def test_verdicts_are_json_lines_until_the_reader_goes() -> None:
    reader, writer = os.pipe()
    lost: Counter[str] = Counter()
    write = json_lines(writer, lost)
    write(TICK)
    assert json.loads(os.read(reader, 65536))["victim"] == "/web"
    assert lost["verdicts.stdout"] == 0
    os.close(reader)
    with pytest.raises(ReaderGone):
        write(TICK)
    os.close(writer)


def test_verdicts_are_sentences_with_names(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log_lines({"/web": "the shop"}.get)(TICK)  # type: ignore[arg-type]
    assert "the shop" in caplog.text
