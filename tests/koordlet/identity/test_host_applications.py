"""Paths of host applications, where they may be and where they may not."""

import msgspec
import pytest

from api.crds.node_slo import HostApplication
from api.frame import CgroupInfo, CgroupKind
from api.qos import QoSClass
from koordlet.identity.host_applications import HostApplicationGroup, host_application_paths, kubepods_directories

DIRECTORIES = {"Guaranteed": "/kubepods.slice", "BestEffort": "/kubepods.slice/kubepods-besteffort.slice"}


@pytest.mark.parametrize(
    ("application", "path"),
    [
        pytest.param({"name": "proxy", "qos": "LS"}, "/host-latency-sensitive/proxy", id="LS"),
        pytest.param({"name": "proxy", "qos": "LSE"}, "/host-latency-sensitive/proxy", id="LSE"),
        pytest.param({"name": "batch", "qos": "BE"}, "/host-best-effort/batch", id="BE"),
        pytest.param({"name": "x", "qos": "SYSTEM"}, "/x", id="other"),
        pytest.param({"name": "x", "qos": "rubbish"}, "/x", id="unknown class"),
        pytest.param(
            {"name": "x", "cgroupPath": {"base": "CgroupRoot", "parentDir": "a/b/", "relativePath": "/c"}},
            "/a/b/c",
            id="root",
        ),
        pytest.param({"name": "x", "cgroupPath": {"relativePath": "c"}}, "/c", id="no base"),
        pytest.param(
            {"name": "x", "cgroupPath": {"base": "KubepodsBesteffort", "relativePath": "hadoop"}},
            "/kubepods.slice/kubepods-besteffort.slice/hadoop",
            id="besteffort",
        ),
        pytest.param(
            {"name": "x", "cgroupPath": {"base": "Kubepods", "relativePath": "y"}}, "/kubepods.slice/y", id="kubepods"
        ),
        pytest.param(
            {"name": "x", "cgroupPath": {"base": "KubepodsBurstable", "relativePath": "y"}}, None, id="absent base"
        ),
        pytest.param({"name": "x", "cgroupPath": {"base": "Elsewhere", "relativePath": "y"}}, None, id="unknown base"),
        pytest.param({"name": "x", "cgroupPath": {"base": "CgroupRoot"}}, None, id="the root itself"),
        pytest.param({"name": "x", "cgroupPath": {"parentDir": "a/../.."}}, None, id="leaves its base"),
        pytest.param({"name": "../x", "qos": "BE"}, None, id="name leaves its base"),
    ],
)
def test_paths(application: dict[str, object], path: str | None) -> None:
    found = host_application_paths([msgspec.convert(application, HostApplication)], DIRECTORIES)
    assert list(found) == ([path] if path else [])


def test_class_and_priority() -> None:
    application = HostApplication(name="proxy", qos="LS", priority="koord-prod")
    found = host_application_paths([application], {})
    assert list(found.values()) == [HostApplicationGroup("proxy", QoSClass.LS, "koord-prod")]


def test_the_kubelets_directories() -> None:
    cgroups = [
        CgroupInfo(1, "/kubepods", "kubepods", kind=CgroupKind.KUBEPODS),
        CgroupInfo(2, "/kubepods/besteffort", "b", kind=CgroupKind.KUBEPODS, kube_qos="BestEffort"),
        CgroupInfo(3, "/kubepods/besteffort/x", "x"),
    ]
    assert kubepods_directories(cgroups) == {"Guaranteed": "/kubepods", "BestEffort": "/kubepods/besteffort"}
