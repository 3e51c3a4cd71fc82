"""The entitled part of a loss: what the victim waits below its own share, and nothing where no share is known."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from api.verdicts import HYPERVISOR, OWN_QUOTA, Culprit, How, Verdict
from koordlet.response.observation import Observation
from tests.koordlet.response.ticks import HOG, WEB, look, tick
from tests.verdicts import make_verdict

CPU = make_verdict(WEB, resource="cpu", cause="contention", lost=0.4)


def waiting(used: float) -> Observation:
    """Four CPUs that the service and best-effort work share."""
    return tick(0.0, used={WEB: used, HOG: 4 - used}, waits={WEB: 0.4, HOG: 5.0}, lost={HOG: 0.4})


@pytest.mark.parametrize(
    ("used", "part"),
    [pytest.param(0.3, 0.4, id="far-below-its-share"), pytest.param(4.0, 0.0, id="with-every-cpu")],
)
def test_what_is_waited_below_the_own_share_is_entitled(used: float, part: float) -> None:
    assert waiting(used).entitled_part(CPU) == pytest.approx(part)


def test_it_is_a_part_of_what_the_verdict_states() -> None:
    """A verdict keeps its last reported loss; the part is that of this tick."""
    assert waiting(0.3).entitled_part(msgspec.structs.replace(CPU, lost_seconds_per_second=0.2)) == pytest.approx(0.2)
    calm = tick(0.0, used={WEB: 0.3, HOG: 3.0}, waits={WEB: 0.0, HOG: 5.0}, lost={HOG: 0.0})
    assert calm.entitled_part(CPU) == 0.0


@pytest.mark.parametrize(
    "verdict",
    [
        pytest.param(
            msgspec.structs.replace(CPU, cause="own_quota", culprits=(Culprit(OWN_QUOTA, 1.0, How.DIRECT),)), id="own"
        ),
        pytest.param(
            msgspec.structs.replace(CPU, cause="steal", culprits=(Culprit(HYPERVISOR, 1.0, How.DIRECT),)), id="steal"
        ),
        pytest.param(msgspec.structs.replace(CPU, resource="network", cause="delay"), id="no-shares"),
        pytest.param(msgspec.structs.replace(CPU, victim="/gone"), id="gone"),
        pytest.param(msgspec.structs.replace(CPU, resource="memory", cause="reclaim"), id="no-request"),
        pytest.param(msgspec.structs.replace(CPU, resource="blockio", cause="delay"), id="no-disk"),
    ],
)
def test_without_a_share_there_is_no_split(verdict: Verdict) -> None:
    assert waiting(0.3).entitled_part(verdict) is None


def test_wishes_that_are_not_measured_give_no_share() -> None:
    assert replace(waiting(0.3), cpu_waits=None).entitled_part(CPU) is None


def test_memory_and_disks_have_shares_by_request_and_by_bytes() -> None:
    seen = look(0.0, lost=0.5)
    reclaim = make_verdict(WEB, resource="memory", cause="reclaim", lost=0.5)
    for request, part in ((1e9, 0.5), (1e3, 0.0)):
        asked = replace(
            seen, request_bytes=np.full(len(seen.cgroups), request), memory_bytes=np.full(len(seen.cgroups), 1e6)
        )
        assert asked.entitled_part(reclaim) == pytest.approx(part)
    ids = {info.id: frozenset({"8:0"}) for info in seen.cgroups if info.path in (WEB, HOG)}
    delay = make_verdict(WEB, resource="blockio", cause="delay", lost=5.0)
    few = np.array([1e6 if info.path == WEB else 1e8 for info in seen.cgroups])
    shared = replace(look(0.0, lost=5.0, used=1.0), io_disks=ids)
    assert replace(shared, io_bytes_per_second=few).entitled_part(delay) == pytest.approx(5.0)
    assert shared.entitled_part(delay) == 0.0
