"""Labels from files, and the report of a score."""

import json
from datetime import UTC

import msgspec
import pytest

from api.settings import SettingsError
from api.verdicts import VerdictState
from detector.evaluation.labels import labels_of, load_labels
from detector.evaluation.report import as_json, as_text
from detector.evaluation.scoring import NOTHING, score, total
from tests.detector.evaluation.test_scoring import label, line

FIRST, LAST = 1_700_000_000 * 10**9, 1_700_000_100 * 10**9
TOML = """
[[label]]
victim = "/web*"
resource = "cpu"
culprit = "/hog"
from = "+10s"
to = 1700000020
[[label]]
victim = "/hog"
resource = "cpu"
from = "+0s"
to = "+1m"
tolerated = true
recording = "other"
"""


def test_labels_speak_of_a_recording() -> None:
    (found,) = labels_of(load_labels(TOML, "l.toml"), "here", FIRST, LAST, UTC)
    assert (found.victim, found.start, found.end, found.tolerated) == ("/web*", 1_700_000_010, 1_700_000_020, False)
    assert [each.tolerated for each in labels_of(load_labels(TOML, "l.toml"), "other", FIRST, LAST)] == [False, True]


def test_labels_of_another_time_are_left_out() -> None:
    written = load_labels('{"label": [{"victim": "/w", "resource": "cpu", "from": 5, "to": 6}]}', "l.json")
    assert labels_of(written, "here", FIRST, LAST) == []


@pytest.mark.parametrize(
    ("text", "source", "told"),
    [
        pytest.param("{", "l.json", "not readable", id="cut-short-json"),
        pytest.param("label = 3", "l.toml", "label", id="label-is-no-table"),
        pytest.param('[[label]]\nvictim = "/w"\n', "l.toml", "resource", id="no-resource"),
        pytest.param(
            '[[label]]\nvictim = "/w"\nresource = "cpu"\nfrom = 1\nto = 2\nculprits = "x"\n',
            "l.toml",
            "culprits",
            id="culprits-are-text",
        ),
    ],
)
def test_refused_by_source_and_key(text: str, source: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told) as caught:
        load_labels(text, source)
    assert source in str(caught.value)


def test_a_label_that_ends_before_it_starts_is_refused() -> None:
    written = load_labels('[[label]]\nvictim = "/w"\nresource = "cpu"\nfrom = "+9s"\nto = "+3s"\n', "l.toml")
    with pytest.raises(ValueError, match="/w ends before"):
        labels_of(written, "here", FIRST, LAST)


def test_the_report_shows_figures_misses_and_confusion() -> None:
    lines = [line(12), line(21, VerdictState.CLOSE), line(61, culprit="/x", rule="b")]
    found = score("night", [label(), label(40, 50), label(60, 70)], lines, until=80)
    text = as_text(total([found]))
    for words in (
        "66.7%  2 of 3 labels",
        "100.0%  2 of 2 verdicts",
        "50.0%",
        "wrong culprit: /web: /x",
        "missed: /web",
    ):
        assert words in text, text
    row = next(each for each in text.splitlines() if each.strip().startswith("cpu "))
    assert row.split() == ["cpu", "2", "1"]
    assert NOTHING in text


def test_the_report_of_silence_has_no_figures() -> None:
    text = as_text(score("quiet", [], [], until=1))
    assert "0 of 0 verdicts" in text
    assert "%" not in text


def test_json_has_every_figure_and_null_where_there_is_none() -> None:
    told = json.loads(msgspec.json.encode(as_json(score("s", [label()], [], until=30))))
    assert (told["precision"], told["recall"], told["labels"], told["episodes"]) == (None, 0.0, 1, 0)
    assert told["confusion"] == [{"labelled": "cpu", "reported": NOTHING, "count": 1}]
    assert told["outcomes"][0]["from"] == 10
