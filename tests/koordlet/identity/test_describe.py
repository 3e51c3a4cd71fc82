"""Descriptions of cgroups: pods by the table, containers by the table or the runtime, nothing by a name alone."""

from dataclasses import replace

import pytest

from api.frame import CgroupInfo, CgroupKind
from api.qos import QoSClass, QoSSource
from koordlet.identity.cgroup_names import QoSRule
from koordlet.identity.describe import Sources, describe
from koordlet.identity.host_applications import HostApplicationGroup
from koordlet.identity.pods import ContainerRole, PodContainer, PodFacts, PodTable
from koordlet.identity.workloads import ContainerFacts

UID, HASH = "8c1e5e0a-1b2c-4d3e-9f00-aabbccddeeff", "0123456789abcdef" * 2
APP, SIDECAR, PAUSE, LATER = (letter * 64 for letter in "abcd")
POD = f"/kubepods/burstable/pod{UID}"
WEB = PodFacts(
    "shop/web-5f6d7b8c9-x2x4z",
    QoSClass.LS,
    9500,
    uid=UID,
    cgroup_uid=UID,
    kube_qos="Burstable",
    workload="Deployment/shop/web",
    containers=(
        PodContainer("app", APP, earlier_ids=("e" * 64,)),
        PodContainer("proxy", SIDECAR, ContainerRole.SIDECAR),
        PodContainer("", PAUSE, ContainerRole.SANDBOX),
    ),
)
ETCD = PodFacts("kube-system/etcd-n1", uid="mirror-uid", cgroup_uid=HASH, static=True, workload="kube-system/etcd-n1")
TABLE = PodTable((WEB, ETCD), generation=1)


def no_files(_container_id: str) -> ContainerFacts:
    return ContainerFacts()


def known(
    path: str, table: PodTable = TABLE, *, rules: tuple[QoSRule, ...] = (), delegated: bool = False
) -> CgroupInfo:
    return describe(7, path, Sources(rules=rules).with_pods(table), no_files, delegated=delegated).info


@pytest.mark.parametrize(
    ("path", "name", "container", "role"),
    [
        pytest.param(POD, WEB.name, "", "", id="pod"),
        pytest.param(f"{POD}/{APP}", f"{WEB.name}/app", "app", "app", id="app"),
        pytest.param(f"{POD}/{'e' * 64}", f"{WEB.name}/app", "app", "app", id="earlier-instance"),
        pytest.param(f"{POD}/{SIDECAR}", f"{WEB.name}/proxy", "proxy", "sidecar", id="sidecar"),
        pytest.param(f"{POD}/{PAUSE}", f"{WEB.name} (sandbox)", "POD", "sandbox", id="sandbox"),
    ],
)
def test_cgroups_of_a_pod(path: str, name: str, container: str, role: str) -> None:
    info = known(path)
    assert (info.name, info.container, info.role) == (name, container, role)
    assert (info.namespace, info.pod, info.workload) == ("shop", "web-5f6d7b8c9-x2x4z", "Deployment/shop/web")
    assert (info.qos, info.qos_source, info.priority, info.priority_band) == ("LS", "label", 9500, "koord-prod")
    assert info.pod_uid == UID


def test_a_cgroup_inside_a_container_has_its_pod_and_no_workload() -> None:
    info = known(f"{POD}/{APP}/system.slice/job")
    assert (info.kind, info.name) == (CgroupKind.PLAIN, f"{WEB.name}/app:/system.slice/job")
    assert (info.pod, info.container, info.workload, info.qos) == ("web-5f6d7b8c9-x2x4z", "", "", "LS")


def test_a_static_pod_is_known_by_its_config_hash_and_is_of_the_system() -> None:
    info = known(f"/kubepods/burstable/pod{HASH}")
    assert (info.name, info.qos, info.pod_uid) == ("kube-system/etcd-n1", "SYSTEM", "mirror-uid")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            f"/user.slice/user-1000.slice/user@1000.service/kubepods-pod{UID.replace('-', '_')}.slice", id="s1"
        ),
        pytest.param(f"/kubepods/burstable/pod{'f' * 8}{UID[8:]}", id="uid-unknown"),
        pytest.param(f"/other/kubepods/burstable/pod{UID}/{APP}", id="other-place"),
    ],
)
def test_a_directory_that_claims_to_be_a_pod_is_none(path: str) -> None:
    info = known(path)
    assert (info.qos, info.pod_uid, info.container_id, info.namespace, info.kube_qos) == ("", "", "", "", "")
    assert info.kind in (CgroupKind.PLAIN, CgroupKind.UNIT)
    assert "shop" not in info.name + info.workload


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(POD, id="pod"),
        pytest.param(f"{POD}/{APP}", id="container"),
        pytest.param(f"/system.slice/docker-{APP}.scope", id="scope"),
    ],
)
def test_what_a_user_made_is_no_pods(path: str) -> None:
    info = known(path, delegated=True, rules=(QoSRule("docker-*", QoSClass.LSR),))
    assert (info.qos, info.pod_uid, info.namespace) == ("", "", "")
    assert info.workload == known(path, PodTable(), delegated=True).workload
    assert "Deployment" not in info.workload


def test_a_pod_counts_only_where_the_kubelet_placed_it() -> None:
    nested = "/docker/x/kubelet/kubepods/burstable/pod" + UID
    table = PodTable((replace(WEB, cgroup_path=nested),), generation=1)
    assert known(f"{nested}/{APP}", table).name == f"{WEB.name}/app"
    assert known("/docker/x/kubelet/kubepods/burstable", table).kind is CgroupKind.KUBEPODS
    assert known(f"{POD}/{APP}", table).qos == ""


def test_rules_of_the_settings_come_first_and_match_pods_by_name() -> None:
    assert known(f"{POD}/{APP}", rules=(QoSRule("shop/*", QoSClass.BE),)).qos == "BE"
    assert known(f"{POD}/{APP}", rules=(QoSRule("/kubepods/*", QoSClass.LSE),)).qos_source == "settings"


def test_no_rule_takes_protection_from_a_critical_pod() -> None:
    proxy = replace(WEB, qos=QoSClass.NONE, priority=2_000_001_000, kube_qos="BestEffort")
    table = PodTable((proxy,), generation=1)
    assert known(POD, table, rules=(QoSRule("*", QoSClass.BE),)).qos == "SYSTEM"
    assert known(POD, table, rules=(QoSRule("*", QoSClass.LSE),)).qos == "LSE"


def test_a_container_that_the_table_lacks_is_named_by_the_runtime_and_awaited() -> None:
    def files(container_id: str) -> ContainerFacts:
        facts = {
            LATER: ContainerFacts(namespace="shop", pod="web-5f6d7b8c9-x2x4z", container="app"),
            "e" * 63 + "f": ContainerFacts(namespace="other", pod="victim", container="app"),
            PAUSE: ContainerFacts(namespace="shop", pod="web-5f6d7b8c9-x2x4z", is_sandbox=True),
        }
        return facts.get(container_id, ContainerFacts())

    sources = Sources().with_pods(PodTable((replace(WEB, containers=WEB.containers[:2]),), generation=1))
    later = describe(7, f"{POD}/{LATER}", sources, files)
    assert (later.info.name, later.is_awaited) == (f"{WEB.name}/app", True)
    foreign = describe(7, f"{POD}/{'e' * 63}f", sources, files)
    assert (foreign.info.name, foreign.info.container) == (f"{WEB.name}/{'e' * 12}", "")
    assert foreign.is_awaited
    sandbox = describe(7, f"{POD}/{PAUSE}", sources, files)
    assert (sandbox.info.name, sandbox.is_awaited) == (f"{WEB.name} (sandbox)", False)


def test_labels_of_a_container_outside_the_kubelets_tree_name_no_pod() -> None:
    def files(_container_id: str) -> ContainerFacts:
        return ContainerFacts(name="db", namespace="shop", pod="web", container="app")

    path = f"/system.slice/docker-{APP}.scope"
    info = describe(7, path, Sources().with_pods(TABLE), files).info
    assert (info.name, info.namespace, info.workload) == ("db", "", "db")


def test_without_a_source_of_pods_the_layout_and_the_runtime_tell() -> None:
    def files(_container_id: str) -> ContainerFacts:
        return ContainerFacts(namespace="shop", pod="web-0", container="app")

    found = describe(7, f"{POD}/{APP}", Sources(), files)
    info = found.info
    assert (info.name, info.workload, info.qos) == ("shop/web-0/app", "StatefulSet/shop/web", "LS")
    assert (info.namespace, info.pod, info.container, found.is_awaited) == ("shop", "web-0", "app", False)


def test_hostile_names_of_a_table_are_printable() -> None:
    pod = replace(WEB, name="shop/w\x1b[2Jeb", workload="Deployment/shop/\n")
    info = known(f"{POD}/{APP}", PodTable((pod,), generation=1))
    assert all(text.isprintable() for text in (info.name, info.pod, info.workload))


def test_a_host_application_has_the_class_of_the_nodes_slo_where_no_rule_gives_one() -> None:
    proxy = HostApplicationGroup("proxy", QoSClass.LS, "koord-prod")
    base = "/kubepods/besteffort/hadoop"
    sources = Sources(applications={"/host/proxy": proxy, base: HostApplicationGroup("hadoop", QoSClass.BE)})
    found = [describe(7, path, sources, no_files).info for path in ("/host/proxy", "/host/proxy/worker", base, "/host")]
    assert [(info.name, info.qos, info.priority_band) for info in found] == [
        ("proxy", "LS", "koord-prod"),
        ("worker", "LS", "koord-prod"),
        ("hadoop", "BE", ""),
        ("host", "", ""),
    ]
    assert found[0].qos_source is QoSSource.NODE_SLO
    ruled = replace(sources, rules=(QoSRule("/host/*", QoSClass.SYSTEM),))
    assert describe(7, "/host/proxy", ruled, no_files).info.qos == "SYSTEM"
    pods = replace(sources, applications={POD: proxy}).with_pods(TABLE)
    assert describe(7, POD, pods, no_files).info.name == WEB.name, "a pod is no application"
