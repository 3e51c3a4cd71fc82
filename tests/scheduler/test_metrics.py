"""Attempts under the names that dashboards ask for: with and without binding, and what of them is bounded."""

from typing import Any

from prometheus_client import generate_latest

from scheduler import metrics as module
from scheduler.cluster_state.podinfo import PodClasses
from scheduler.metrics import Metrics
from scheduler.outcome import AttemptOutcome, Result
from tests.schedobjects import pod

CLASSES = PodClasses()


def outcome(name: str, result: Result) -> AttemptOutcome:
    return AttemptOutcome(result, CLASSES.info(pod(name)), attempts=1, first_seen=5.0)


def text_of(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def test_an_attempt_ends_with_its_binding() -> None:
    metrics = Metrics("p")
    metrics.attempted(outcome("a", Result.WAITING), 0.002)
    assert "scheduler_scheduling_algorithm_duration_seconds_count 1.0" in text_of(metrics)
    assert "scheduler_e2e_scheduling_duration_seconds_count{" not in text_of(metrics)
    metrics.ended(outcome("a", Result.SCHEDULED), 8.0)
    text = text_of(metrics)
    assert 'scheduler_e2e_scheduling_duration_seconds_count{profile="p",result="scheduled"} 1.0' in text
    assert 'scheduler_pod_scheduling_duration_seconds_sum{attempts="1"} 3.0' in text
    assert "process_cpu_seconds_total" in text


def test_an_outcome_of_an_attempt_that_is_not_known_is_counted_all_the_same() -> None:
    metrics = Metrics("p")
    metrics.ended(outcome("a", Result.UNSCHEDULABLE), 8.0)
    assert 'scheduler_schedule_attempts_total{profile="p",result="unschedulable"} 1.0' in text_of(metrics)


def test_beginnings_of_attempts_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "MOST_BEGUN", 3)
    metrics = Metrics("p")
    for number in range(10):
        metrics.attempted(outcome(f"p{number}", Result.WAITING), 0.001)
    for number in range(10):
        metrics.ended(outcome(f"p{number}", Result.SCHEDULED), 8.0)
    assert 'scheduler_e2e_scheduling_duration_seconds_count{profile="p",result="scheduled"} 3.0' in text_of(metrics)


def test_requests_are_counted_by_method_and_code() -> None:
    metrics = Metrics("p")
    metrics.requested("POST", 201, 0.01)
    assert 'rest_client_requests_total{code="201",method="POST"} 1.0' in text_of(metrics)
    assert 'rest_client_request_duration_seconds_count{verb="POST"} 1.0' in text_of(metrics)
