"""A scenario's claims become labels: losses begin with the harm, what is tolerated may be told at any time."""

from pathlib import Path

from bench.detect.claims import Claim, Scenario, labels_of, mutual
from bench.detect.scenarios import SCENARIOS
from detector.registry import discover_symptoms

PATHS = {"victim": "/top/victim", "hog": "/top/hog"}


def scenario(*claims: Claim) -> Scenario:
    return Scenario("one", "", lambda _stage: None, claims)


def test_a_claimed_loss_lasts_as_long_as_the_harm() -> None:
    (label,) = labels_of(scenario(Claim("victim", "cpu", "contention", "hog")), PATHS, "/top", (7.0, 17.0), (0.0, 20.0))
    assert (label.victim, label.culprit, label.start, label.end) == ("/top/victim", "/top/hog", 7.0, 17.0)
    assert not label.tolerated


def test_what_is_tolerated_is_so_all_along() -> None:
    labels = labels_of(scenario(*mutual("hog")), PATHS, "/top", (7.0, 17.0), (0.0, 20.0))
    assert {(label.start, label.end, label.tolerated) for label in labels} == {(0.0, 20.0, True)}
    assert {label.cause for label in labels} == {"contention", "own_threads"}


def test_bracketed_names_and_patterns_stand() -> None:
    claims = (Claim("victim", "cpu", "own_quota", "[own quota]"), Claim("victim", "cpu", "contention", "job-*"))
    labels = labels_of(scenario(*claims), PATHS, "/top", (0.0, 1.0), (0.0, 1.0))
    assert [label.culprit for label in labels] == ["[own quota]", "/top/job-*"]


def test_only_untolerated_claims_make_a_scenario_unclean() -> None:
    assert scenario(*mutual("hog")).is_clean
    assert not scenario(Claim("victim", "cpu", "contention")).is_clean


def test_scenarios_are_told_apart_by_name() -> None:
    names = [each.name for each in SCENARIOS]
    assert len(names) == len(set(names)) >= 20


def test_claims_speak_of_symptoms_that_there_are() -> None:
    known = {(symptom.resource, symptom.cause) for symptom in discover_symptoms().values()}
    resources = {resource for resource, _ in known}
    for each in SCENARIOS:
        for claim in each.claims:
            assert claim.resource in resources
            assert (claim.resource, claim.cause) in known or (claim.tolerated and not claim.cause)


def test_every_scenario_is_proven_by_something_else_than_the_product() -> None:
    assert [each.name for each in SCENARIOS if not each.proofs and not each.is_clean] == []


def test_the_document_lists_every_scenario_as_it_is() -> None:
    document = (Path(__file__).parents[3] / "docs/detection.md").read_text()
    for each in SCENARIOS:
        assert f"| `{each.name}` | {each.about} |" in document
