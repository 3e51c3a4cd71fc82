"""AncestorLimitRefault: whose reclaim took the pages, and the verdict on it."""

import math

import pytest

from api.verdicts import Verdict
from api.window import Window
from detector.judging.judge import Judge, JudgeSettings
from detector.symptom import Symptom
from detector.symptoms.ancestor_limit_refault import AncestorLimitRefault
from detector.symptoms.refault import Refault
from detector.view import View
from tests.detector.symptoms.ticks import MS
from tests.frames import make_frame

NODE = {1: "/", 2: "/pod", 3: "/pod/web", 4: "/pod/sidecar", 5: "/else"}
NO_LIMIT = math.inf
RULES = ("memory", "memory-limit", "refault", "unexplained-memory", "pressure")
"""Those that are about memory here, whatever else is installed."""
LIMITS = [NO_LIMIT, 64e6, NO_LIMIT, NO_LIMIT, NO_LIMIT]
REFAULTS, OWN, ABOVE = "memstat.refaults", "memory.stall_own_limit_ns", "memory.stall_ancestor_limit_ns"


def lost(symptom: Symptom, limits: list[float], **stalls: list[float]) -> list[float]:
    """What /pod/web and /else lose in a second with 5000 pages read again, beside these stalls in milliseconds."""
    columns = {REFAULTS: [0, 5000, 5000, 0, 5000], OWN: [0.0] * 5, ABOVE: [0.0] * 5}
    columns["memory.pressure_pages"] = stalls.get("taken", [0.0] * 5)
    columns["memstat.usage_bytes"] = stalls.get("held", [0.0] * 5)
    columns |= {
        name: [each * MS for each in row]
        for name, row in ((OWN, stalls.get("own")), (ABOVE, stalls.get("above")))
        if row
    }
    frames = [
        make_frame(
            t,
            NODE,
            {name: [each * t for each in row] for name, row in columns.items()} | {"memstat.limit_bytes": limits},
        )
        for t in (0, 1)
    ]
    signal = symptom.sense(View(Window(frames), symptom.columns))
    assert signal is not None
    return [float(signal.lost[2]), float(signal.lost[4])]


@pytest.mark.parametrize(
    ("stalls", "limits", "by_ancestor", "by_node"),
    [
        pytest.param({}, LIMITS, 0.0, 0.5, id="nothing reclaims under a limit"),
        pytest.param({"above": [0, 0, 0, 300, 0]}, LIMITS, 0.5, 0.0, id="the sidecar reclaims"),
        pytest.param({"above": [0, 0, 300, 0, 0]}, LIMITS, 0.5, 0.0, id="itself"),
        pytest.param({"own": [0, 300, 0, 0, 0]}, LIMITS, 0.5, 0.0, id="a task of the pod's own cgroup"),
        pytest.param({"own": [0, 0, 300, 0, 0], "above": [0, 0, 0, 300, 0]}, LIMITS, 0.0, 0.0, id="own limit too"),
        pytest.param({"above": [0, 0, 0, 300, 0]}, [NO_LIMIT] * 5, 0.0, 0.5, id="limits not known"),
        pytest.param({"own": [0, 0, 0, 300, 0]}, LIMITS, 0.0, 0.5, id="the sidecar's own limit"),
    ],
)
def test_refaults_belong_to_the_limit_that_is_reclaimed_under(
    stalls: dict[str, list[float]], limits: list[float], by_ancestor: float, by_node: float
) -> None:
    assert lost(AncestorLimitRefault(), limits, **stalls) == pytest.approx([by_ancestor, 0.0])
    assert lost(Refault(), limits, **stalls) == pytest.approx([by_node, 0.5])


@pytest.mark.parametrize(("taken", "by_ancestor", "by_node"), [(0.0, 0.5, 0.0), (9000.0, 0.0, 0.5)])
def test_cheap_reclaim_under_a_limit_is_enough_where_the_node_is_not_short(
    taken: float, by_ancestor: float, by_node: float
) -> None:
    pages = [0.0, 0.0, 0.0, 0.0, taken]
    assert lost(AncestorLimitRefault(), LIMITS, above=[0, 0, 2, 0, 0], taken=pages)[0] == pytest.approx(by_ancestor)
    assert lost(Refault(), LIMITS, above=[0, 0, 2, 0, 0], taken=pages)[0] == pytest.approx(by_node)


@pytest.mark.parametrize(
    ("taken", "held", "by_ancestor", "by_node"),
    [(1.0, 20e6, 0.5, 0.0), (9000.0, 63e6, 0.5, 0.0), (9000.0, 20e6, 0.0, 0.5)],
)
def test_cheap_reclaim_under_a_full_limit_is_enough_also_where_the_node_is_short(
    taken: float, held: float, by_ancestor: float, by_node: float
) -> None:
    stalls = {"above": [0, 0, 5.0, 0, 0], "taken": [0, 0, 0, 0, taken], "held": [0, held, 0, held, 0]}
    assert lost(AncestorLimitRefault(), LIMITS, **stalls)[0] == pytest.approx(by_ancestor)
    assert lost(Refault(), LIMITS, **stalls)[0] == pytest.approx(by_node)


def test_a_verdict_follows_who_comes_to_hold_the_memory() -> None:
    judge, named = Judge(JudgeSettings()), []
    for second in range(9):
        columns = {
            REFAULTS: [0, 5000 * second, 5000 * second, 0, 0],
            ABOVE: [0, 0, 0, 300 * MS * second, 0],
            "memstat.limit_bytes": LIMITS,
            "memstat.usage_bytes": [64e6, 64e6, 40e6, 24e6, 0] if second < 4 else [64e6, 64e6, 12e6, 52e6, 0],
        }
        lines = [each for each in judge.step(make_frame(second, NODE, columns)) if each.rule in RULES]
        named += [(second, each.state, each.culprits[0].path) for each in lines if each.victim == "/pod/web"]
    assert named == [(2, "open", "/pod"), (5, "update", "/pod/sidecar")]


def test_few_pages_are_no_loss() -> None:
    columns = {REFAULTS: [1500.0], ABOVE: [300.0 * MS]}
    frames = [
        make_frame(t, {1: "/web"}, {name: [each * t for each in row] for name, row in columns.items()}) for t in (0, 1)
    ]
    signal = AncestorLimitRefault().sense(View(Window(frames), AncestorLimitRefault.columns))
    assert signal is not None
    assert float(signal.lost[0]) == 0.0


def told(
    limits: list[float], paths: dict[int, str], refaulting: list[int], stalled_ms: list[int], held: list[float]
) -> list[Verdict]:
    judge, said = Judge(JudgeSettings()), []
    for second in range(6):
        columns = {
            REFAULTS: [each * second for each in refaulting],
            ABOVE: [each * MS * second for each in stalled_ms],
            "memstat.limit_bytes": limits,
            "memstat.usage_bytes": held,
        }
        said += [each for each in judge.step(make_frame(second, paths, columns)) if each.rule in RULES]
    return said


def test_one_verdict_names_who_holds_the_memory() -> None:
    said = told(LIMITS, NODE, [0, 5000, 5000, 0, 0], [0, 0, 0, 300, 0], [64e6, 64e6, 12e6, 52e6, 0])
    about_web = [each for each in said if each.victim == "/pod/web"]
    assert [(each.rule, each.cause, each.state) for each in about_web] == [("memory-limit", "ancestor_limit", "open")]
    assert about_web[0].culprits[0].path == "/pod/sidecar"


def test_an_ancestor_without_a_limit_is_passed_over() -> None:
    paths = {1: "/", 2: "/all", 3: "/all/pod", 4: "/all/pod/web", 5: "/all/batch"}
    limits = [NO_LIMIT, 64e6, NO_LIMIT, NO_LIMIT, NO_LIMIT]
    said = told(limits, paths, [0] * 5, [0, 0, 0, 300, 0], [64e6, 64e6, 12e6, 12e6, 52e6])
    assert [each.path for each in said[0].culprits] == ["/all/batch", "/all"]


KUBEPODS = {1: "/", 2: "/kubepods", 3: "/kubepods/a", 4: "/kubepods/a/web", 5: "/kubepods/b", 6: "/kubepods/b/hog"}


@pytest.mark.parametrize(
    ("held", "culprits", "confidence"),
    [
        pytest.param([10e9, 10e9, 0.5e9, 0.5e9, 9.5e9, 9.5e9], ["/kubepods/b/hog"], 1.0, id="the outer limit is full"),
        pytest.param([3e9, 3e9, 1e9, 1e9, 2e9, 2e9], ["/kubepods/a"], 0.5, id="the pod's limit too far to tell"),
        pytest.param([10e9, 10e9, 2e9, 2e9, 8e9, 8e9], ["/kubepods/a"], 0.5, id="both are full"),
        pytest.param([5e9, 5e9, 2e9, 2e9, 3e9, 3e9], ["/kubepods/a"], 1.0, id="the pod's limit is full"),
    ],
)
def test_of_several_limits_the_nearest_full_one_is_meant(
    held: list[float], culprits: list[str], confidence: float
) -> None:
    limits = [NO_LIMIT, 10e9, 2e9, NO_LIMIT, 20e9, NO_LIMIT]
    said = told(limits, KUBEPODS, [0] * 6, [0, 0, 0, 300, 0, 0], held)
    assert [each.path for each in said[0].culprits][:1] == culprits
    assert said[0].confidence == confidence


def test_pages_that_a_neighbour_in_another_pod_takes_under_the_full_limit_above_both() -> None:
    limits = [NO_LIMIT, 10e9, 1e9, NO_LIMIT, 20e9, NO_LIMIT]
    held = [10e9, 10e9, 0.5e9, 0.5e9, 9.5e9, 9.5e9]
    said = told(limits, KUBEPODS, [0, 5000, 5000, 5000, 0, 0], [0, 0, 0, 0, 0, 300], held)
    about_web = [each for each in said if each.victim == "/kubepods/a/web"]
    assert [(each.rule, each.cause) for each in about_web] == [("memory-limit", "ancestor_limit")]
    assert [(each.path, each.share) for each in about_web[0].culprits] == [
        ("/kubepods/b/hog", pytest.approx(0.95)),
        ("/kubepods", pytest.approx(0.05)),
    ]
    assert about_web[0].confidence == 0.0


def test_who_comes_to_hold_the_memory_is_followed_in_many_verdicts_also_after_a_restart() -> None:
    pods = range(40)
    paths = {3 * pod + number: f"/{pod}{name}" for pod in pods for number, name in ((1, ""), (2, "/web"), (3, "/side"))}
    judge, moved = Judge(JudgeSettings()), []
    for second in range(16):
        held = [[64e6, 40e6, 24e6]] * len(pods)
        if second >= 8:
            held[-1] = [64e6, 12e6, 52e6]
        columns = {
            REFAULTS: [5000 * second, 5000 * second, 0] * len(pods),
            ABOVE: [0, 0, 300 * MS * second] * len(pods),
            "memstat.limit_bytes": [64e6, NO_LIMIT, NO_LIMIT] * len(pods),
            "memstat.usage_bytes": [each for row in held for each in row],
        }
        judge = Judge.resume(judge.settings, judge.checkpoint())
        lines = judge.step(make_frame(second, paths, columns))
        moved += [each.victim for each in lines if each.state == "update" and each.culprits[0].path.endswith("/side")]
    assert moved == ["/39/web"]
