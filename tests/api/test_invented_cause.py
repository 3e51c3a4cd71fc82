"""A verdict of a resource and cause that no table names, as a new symptom brings it, passes through every reader."""

import pytest

from api.verdict_text import in_words, loss_in_words
from api.verdicts import Culprit, How, from_json, is_self_inflicted, to_json
from koordlet.agent.detection import DetectionState
from koordlet.identity.pods import NO_PODS, PodFacts, PodTable
from koordlet.kube.events import VerdictEvents
from koordlet.kube.verdict_entries import entries_of
from koordlet.metrics.verdicts import VerdictMetrics
from koordlet.top.verdicts import evidence, pane
from tests.verdicts import make_verdict

INVENTED = make_verdict(resource="tape", cause="slow_robot", culprits=(Culprit("/batch", 0.5, How.DIRECT),))


def test_it_goes_over_the_wire_and_reads_well() -> None:
    assert from_json(to_json(INVENTED)) == INVENTED
    assert loss_in_words(INVENTED) == "to tape slow robot"
    assert in_words(INVENTED) == "/web lost 0.40 s/s to tape slow robot: 0.20 to /batch"


@pytest.mark.parametrize(
    ("cause", "own"),
    [
        pytest.param("slow_robot", False, id="neighbours"),
        pytest.param("own_drives", True, id="own"),
        pytest.param("ancestor_share", True, id="ancestors"),
        pytest.param("mount_limit", True, id="limit"),
    ],
)
def test_its_name_says_whether_the_victim_is_at_fault_itself(cause: str, own: bool) -> None:
    assert is_self_inflicted(make_verdict(resource="tape", cause=cause)) == own


def test_the_scheduler_is_told_nothing_of_a_resource_that_it_does_not_know() -> None:
    assert entries_of([INVENTED], NO_PODS) == ()


def test_events_and_metrics_take_it() -> None:
    uid = "11111111-0000-4000-8000-000000000000"
    pods = PodTable([PodFacts("shop/web-1", uid=uid)], generation=1)
    on_pod = make_verdict(f"/kubepods/burstable/pod{uid}", resource="tape", cause="slow_robot")
    (event,) = VerdictEvents(lambda: pods).events(on_pod)
    assert event.reason == "Interference"
    metrics = VerdictMetrics(10, str)
    metrics.update([INVENTED], [INVENTED], DetectionState())
    labels = [sample.labels for family in metrics.collect() for sample in family.samples]
    assert {"resource": "tape", "cause": "slow_robot", "severity": "medium"} in labels


def test_the_live_view_shows_it() -> None:
    assert "tape slow robot" in pane([INVENTED], 1001.0, str, width=120, lines=3).plain
    assert "to tape slow robot" in evidence([INVENTED], 1001.0, str).plain
