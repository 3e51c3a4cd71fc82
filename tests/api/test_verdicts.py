"""The wire form of a verdict."""

import json

import msgspec
import pytest

from api.verdict_text import in_words, loss_in_words
from api.verdicts import OWN_THREADS, CgroupRef, Culprit, How, Severity, Verdict, VerdictState, from_json, to_json
from detector.registry import discover_symptoms

VERDICT = Verdict(
    time=17.5,
    state=VerdictState.OPEN,
    victim="/web",
    resource="cpu",
    cause="contention",
    lost_seconds_per_second=0.4,
    severity=Severity.HIGH,
    culprits=(Culprit("/batch", 0.75, How.DIRECT), Culprit("/other", 0.1, How.CORRELATED)),
    confidence=0.75,
    evidence={"cpu_contention.lost": 0.4},
    since=5.5,
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


NAMES = {"/web": "web", "/batch": "batch-7"}


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        pytest.param(
            VERDICT, "web lost 0.40 s/s waiting for CPU: 0.30 to batch-7, 0.04 to /other (correlated)", id="blamed"
        ),
        pytest.param(
            msgspec.structs.replace(VERDICT, culprits=()),
            "web lost 0.40 s/s waiting for CPU: no culprit can be named",
            id="nobody",
        ),
        pytest.param(
            msgspec.structs.replace(
                VERDICT, culprits=(Culprit(OWN_THREADS, 0.5, How.DIRECT),), state=VerdictState.UPDATE
            ),
            "web now loses 0.40 s/s waiting for CPU: 0.20 to itself",
            id="changed",
        ),
        pytest.param(
            msgspec.structs.replace(VERDICT, state=VerdictState.CLOSE),
            "web no longer loses notable time waiting for CPU, after 12 s",
            id="closed",
        ),
        pytest.param(
            msgspec.structs.replace(VERDICT, resource="tape", cause="slow_robot", culprits=()),
            "web lost 0.40 s/s to tape slow robot: no culprit can be named",
            id="a-loss-without-words-of-its-own",
        ),
    ],
)
def test_in_words(verdict: Verdict, words: str) -> None:
    assert in_words(verdict, lambda path: NAMES.get(path, path)) == words


def test_the_worst_culprits_are_named() -> None:
    many = tuple(Culprit(f"/{number}", 0.1, How.DIRECT) for number in range(9))
    assert in_words(msgspec.structs.replace(VERDICT, culprits=many), most=2).count("0.04 to") == 2


def test_the_root_cgroup_is_named_by_what_it_holds() -> None:
    blamed = (Culprit("/", 0.75, How.DIRECT),)
    told = in_words(msgspec.structs.replace(VERDICT, culprits=blamed), lambda path: path)
    assert told == "/web lost 0.40 s/s waiting for CPU: 0.30 to processes in no cgroup of their own"


def test_every_loss_that_is_judged_has_words() -> None:
    for symptom in discover_symptoms().values():
        told = loss_in_words(msgspec.structs.replace(VERDICT, resource=symptom.resource, cause=symptom.cause))
        assert "_" not in told


def test_references_name_pods_and_their_owners() -> None:
    web = CgroupRef("shop/web-5f6d7b8c9-x2x4z/app", "shop", "web-5f6d7b8c9-x2x4z", "app", "uid", "Deployment/shop/web")
    bare = CgroupRef("batch/one/main", "batch", "one", "main", "uid-2", "batch/one")
    unit = CgroupRef("nginx.service", workload="nginx.service")
    culprits = (Culprit("/x", 0.5, How.DIRECT, bare), Culprit("/y", 0.25, How.DIRECT, unit))
    verdict = msgspec.structs.replace(VERDICT, victim_ref=web, culprits=culprits)
    assert from_json(to_json(verdict)) == verdict
    assert in_words(verdict) == (
        "shop/web-5f6d7b8c9-x2x4z/app (Deployment web) lost 0.40 s/s waiting for CPU: "
        "0.20 to batch/one/main, 0.10 to nginx.service"
    )
    assert in_words(verdict, str).startswith("/web (Deployment web) lost")
