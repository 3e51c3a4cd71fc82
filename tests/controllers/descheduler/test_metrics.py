"""Pods that were moved: counted by plugin, namespace and node once they were asked for, bounded."""

from collections import Counter

from prometheus_client import generate_latest

from cluster import Key
from controllers.descheduler.kinds import POD
from controllers.descheduler.metrics import MOST_SERIES, DeschedulerMetrics
from controllers.runtime.writer import Answer, Result
from controllers.runtime.writes import Move, Verb, Write


def answer(result: Result, *strategies: str, done: int = 0) -> Answer:
    writes = [
        Write(Verb.EVICT, POD, Key("shop", f"p{number}"), None, "", moves=Move(strategy, "n1"))
        for number, strategy in enumerate(strategies)
    ]
    return Answer("migration", writes[0].target, writes, result, done)


def test_results_are_told_apart() -> None:
    metrics = DeschedulerMetrics(Counter({("LowNodeLoad", "n2", "shop", "node"): 3}))
    metrics.answered(answer(Result.DONE, "LowNodeLoad", done=1))
    metrics.answered(answer(Result.FAILED, "LowNodeLoad"))
    metrics.answered(answer(Result.DROPPED, "LowNodeLoad"))
    metrics.answered(answer(Result.UNPLACED, "LowNodeLoad"))
    text = generate_latest(metrics.registry).decode()
    labels = 'namespace="shop",node="{}",result="{}",strategy="LowNodeLoad"'
    assert f"descheduler_pods_evicted{{{labels.format('n1', 'success')}}} 1.0" in text
    assert f"descheduler_pods_evicted{{{labels.format('n1', 'error')}}} 1.0" in text
    limit = labels.format("n2", "maximum number of pods per node reached")
    assert f"descheduler_pods_evicted{{{limit}}} 3.0" in text
    assert text.count("\ndescheduler_pods_evicted{") == 3


def test_names_that_jobs_make_up_are_bounded() -> None:
    metrics = DeschedulerMetrics(Counter())
    for number in range(MOST_SERIES + 10):
        metrics.answered(answer(Result.DONE, f"s{number}", done=1))
    text = generate_latest(metrics.registry).decode()
    assert text.count("\ndescheduler_pods_evicted{") == MOST_SERIES + 1
    assert 'strategy="[other]"} 10.0' in text
