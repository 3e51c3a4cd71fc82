"""Owners of pods as series."""

from api.frame import CgroupInfo, CgroupKind
from koordlet.metrics.owners import NAME, owners


def cgroup(number: int, pod: str, workload: str, kind: CgroupKind = CgroupKind.CONTAINER) -> CgroupInfo:
    return CgroupInfo(number, f"/p/{number}", "n", kind=kind, namespace="shop", pod=pod, workload=workload)


def test_a_pod_with_an_owner_has_one_series_whatever_its_cgroups() -> None:
    web = "Deployment/shop/web"
    family = owners(
        [
            cgroup(1, "web-1", web, CgroupKind.POD),
            cgroup(2, "web-1", web),
            cgroup(3, "web-2", web),
            cgroup(4, "alone", "shop/alone"),
            CgroupInfo(5, "/unit", "unit", workload="unit"),
        ]
    )
    labels = {"namespace": "shop", "owner_kind": "Deployment", "owner_name": "web"}
    assert [sample.labels for sample in family.samples] == [{**labels, "pod": name} for name in ("web-1", "web-2")]
    assert {(sample.name, sample.value) for sample in family.samples} == {(NAME, 1.0)}


def test_a_name_of_any_length_is_bounded() -> None:
    (sample,) = owners([cgroup(1, "web-1", f"Deployment/shop/{'w' * 6000}")]).samples
    assert len(sample.labels["owner_name"]) < 520
