"""The wire form of a verdict."""

import json

import msgspec
import pytest

from api.verdicts import Culprit, How, Severity, State, Verdict, from_json, in_words, to_json

VERDICT = Verdict(
    time=17.5,
    state=State.OPEN,
    victim="/web",
    resource="cpu",
    cause="contention",
    lost_seconds_per_second=0.4,
    severity=Severity.HIGH,
    culprits=(Culprit("/batch", 0.75, How.DIRECT), Culprit("/other", 0.1, How.CORRELATED)),
    confidence=0.75,
    evidence={"cpu_contention.lost": 0.4},
)


def test_one_line_with_schema_that_reads_back() -> None:
    line = to_json(VERDICT)
    assert b"\n" not in line
    plain = json.loads(line)
    assert (plain["schema"], plain["state"]) == ("koord.verdict/v1", "open")
    assert plain["culprits"][0] == {"path": "/batch", "share": 0.75, "how": "direct"}
    assert from_json(line) == VERDICT


def test_another_schema_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="schema"):
        from_json(to_json(VERDICT).replace(b"verdict/v1", b"verdict/v9"))


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        pytest.param(
            VERDICT, "/web lost 0.40 s/s to cpu contention: 0.30 to /batch, 0.04 to /other (correlated)", id="blamed"
        ),
        pytest.param(
            msgspec.structs.replace(VERDICT, culprits=()),
            "/web lost 0.40 s/s to cpu contention: nobody can be named",
            id="nobody",
        ),
        pytest.param(
            msgspec.structs.replace(VERDICT, state=State.CLOSE),
            "/web no longer loses notable time to cpu contention",
            id="closed",
        ),
    ],
)
def test_in_words(verdict: Verdict, words: str) -> None:
    assert in_words(verdict) == words
