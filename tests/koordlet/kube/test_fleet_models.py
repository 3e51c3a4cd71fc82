"""Models from profiles: picked up, the last good ones kept, withdrawn ones gone, all of it bounded."""

import msgspec
import pytest

from api.crds import (
    WORKLOAD_PROFILE,
    DeliveredModels,
    WorkloadProfile,
    WorkloadProfileSpec,
    WorkloadProfileStatus,
    WorkloadReference,
)
from api.kube.workload import workload_named
from cluster import custom
from cluster.twin import Twin
from detector.models.delivery import pack, unpack_plain
from koordlet.identity.pods import PodFacts, PodTable
from koordlet.kube import fleet_models
from koordlet.kube.fleet_baselines import FleetBaselines
from koordlet.kube.fleet_models import FleetModels
from tests.detector.models.test_delivery import WEB, file, model
from tests.waiting import wait_for

PROFILES = custom(WORKLOAD_PROFILE)
OTHER = "Deployment/shop/other"


def profile(workload: str = WEB, samples: int = 300, **more: str) -> WorkloadProfile:
    text, checksum = pack(file(model(workload, samples=samples))) or ("", "")
    models = DeliveredModels(**{"data": text, "sha256": checksum, **more})  # type: ignore[arg-type]
    spec = WorkloadProfileSpec(workload=WorkloadReference(kind="Deployment", name="web"), container="")
    return WorkloadProfile(spec=spec, status=WorkloadProfileStatus(models=models))


NONE = WorkloadProfile(spec=WorkloadProfileSpec(workload=WorkloadReference(kind="x", name="y"), container=""))


def samples(found: FleetModels) -> list[int] | None:
    files = found.take()
    return None if files is None else [each.samples for file in files for each in file.models]


def test_models_come_change_and_are_withdrawn() -> None:
    found = FleetModels()
    assert found.take() is None
    found.heard(WEB, profile())
    found.heard(OTHER, profile(OTHER, 500))
    assert samples(found) == [500, 300], "one file, by workload"
    assert found.take() is None
    found.heard(WEB, profile())
    assert found.take() is None, "nothing new"
    found.heard(WEB, profile(samples=400))
    assert samples(found) == [500, 400]
    found.heard(OTHER, NONE)
    assert samples(found) == [400]
    found.heard(WEB, None)
    assert samples(found) == []


def test_the_last_good_ones_stay_while_what_comes_is_damaged(caplog: pytest.LogCaptureFixture) -> None:
    found = FleetModels()
    found.heard(WEB, profile())
    assert samples(found) == [300]
    for _ in range(3):
        found.heard(WEB, profile(samples=400, sha256="0" * 64))
    found.heard(WEB, profile(samples=400, data="%"))
    assert found.take() is None
    assert found.refused == 2, "each delivery is told once"
    assert "checksum" in caplog.text
    found.heard(WEB, profile(samples=400))
    assert samples(found) == [400]


def test_what_does_not_run_here_is_forgotten_and_the_sum_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    found = FleetModels()
    one = profile()
    assert one.status.models is not None
    monkeypatch.setattr(fleet_models, "MAX_CHARS", len(one.status.models.data) + 10)
    found.heard(WEB, one)
    found.heard(OTHER, profile(OTHER))
    assert (samples(found), found.refused) == ([300], 1)
    found.keep({OTHER})
    assert samples(found) == []
    found.heard(OTHER, profile(OTHER))
    assert (samples(found), found.refused) == ([300], 1), "there is room now"


def test_what_unpacks_to_too_much_is_refused_however_well_it_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = FleetModels()
    one = profile()
    assert one.status.models is not None
    plain = unpack_plain(one.status.models.data, one.status.models.sha256)
    monkeypatch.setattr(fleet_models, "MAX_BYTES", 2 * len(plain) - 1)
    found.heard(WEB, one)
    found.heard(OTHER, profile(OTHER, 500))
    assert (samples(found), found.refused) == ([300], 1)
    found.keep({OTHER})
    found.heard(OTHER, profile(OTHER, 500))
    assert (samples(found), found.refused) == ([500], 1), "there is room now"


def test_a_pod_that_comes_brings_its_workloads_models() -> None:
    with Twin() as twin:
        twin.serve(PROFILES)
        named = workload_named(WEB)
        assert named is not None
        document = msgspec.to_builtins(profile())
        document |= {"apiVersion": WORKLOAD_PROFILE.api_version, "kind": WORKLOAD_PROFILE.kind}
        document["metadata"] = {"name": named.profile_name, "namespace": named.namespace}
        twin.load(PROFILES, [document])
        pods = PodTable([PodFacts("shop/p", workload=WEB)], generation=1)
        found = FleetModels()
        with twin.client() as client:
            fleet = FleetBaselines(client, lambda: pods, models=found, look_seconds=0.02)
            fleet.start()
            try:
                files = wait_for(found.take)
            finally:
                fleet.close()
    assert [each.key.workload for file in files for each in file.models] == [WEB]
