"""The runtime's view after events: what they tell, and what comes too late."""

from dataclasses import replace

import pytest

from koordlet.kubelet.runtime_view import RuntimeContainer, RuntimeEvent, RuntimeSandbox, RuntimeView, follow

WEB = RuntimeSandbox("s1", "uid-1", "shop", "web")
JOB = RuntimeSandbox("s2", "uid-2", "shop", "job")
SERVER = RuntimeContainer("c1", "s1", "server")
STEP = RuntimeContainer("c2", "s2", "step")
ENDED = replace(STEP, running=False, ended=True)
BEFORE = RuntimeView("containerd", (WEB,), (SERVER,))
BOTH = RuntimeView("containerd", (WEB, JOB), (SERVER, STEP))


@pytest.mark.parametrize(
    ("before", "event", "after"),
    [
        pytest.param(BEFORE, RuntimeEvent(JOB), replace(BOTH, containers=(SERVER,)), id="sandbox"),
        pytest.param(BEFORE, RuntimeEvent(JOB, (STEP,)), BOTH, id="started"),
        pytest.param(BOTH, RuntimeEvent(JOB, (ENDED,)), replace(BOTH, containers=(SERVER, ENDED)), id="ended"),
        pytest.param(BOTH, RuntimeEvent(JOB, (), "c2"), replace(BOTH, containers=(SERVER,)), id="deleted"),
        pytest.param(BOTH, RuntimeEvent(JOB, (STEP,), "c2"), replace(BOTH, containers=(SERVER,)), id="deleted-told"),
        pytest.param(BOTH, RuntimeEvent(JOB, (STEP,), "s2"), BEFORE, id="sandbox-deleted"),
        pytest.param(BOTH, RuntimeEvent(deleted="c2"), replace(BOTH, containers=(SERVER,)), id="deleted-by-id-alone"),
        pytest.param(BOTH, RuntimeEvent(), BOTH, id="id-alone"),
        pytest.param(BOTH, RuntimeEvent(JOB, (STEP,)), BOTH, id="told-twice"),
        pytest.param(
            replace(BOTH, containers=(SERVER, ENDED)),
            RuntimeEvent(JOB, (STEP,)),
            replace(BOTH, containers=(SERVER, ENDED)),
            id="late-start-of-what-ended",
        ),
    ],
)
def test_follow(before: RuntimeView, event: RuntimeEvent, after: RuntimeView) -> None:
    assert follow(before, event) == after


def test_only_an_event_with_a_pod_or_a_deletion_tells_anything() -> None:
    assert [RuntimeEvent().tells, RuntimeEvent(JOB).tells, RuntimeEvent(deleted="c").tells] == [False, True, True]
