"""Cgroups follow the table of pods: late pods, restarts, names used again, directories that change their owner."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from api.frame import CgroupInfo, CgroupKind
from api.qos import QoSClass
from koordlet.agent.known_cgroups import REMEMBERED_SECONDS, WORKLOADS_OF_OWNER, KnownCgroups
from koordlet.host.cgroups.walk import CgroupWalk
from koordlet.host.files import HostTree
from koordlet.identity.describe import Sources
from koordlet.identity.host_applications import HostApplicationGroup
from koordlet.identity.pods import NO_PODS, PodContainer, PodFacts, PodTable

UID, OTHER = "8c1e5e0a-1b2c-4d3e-9f00-aabbccddeeff", "9d2f6f1b-1b2c-4d3e-9f00-aabbccddeeff"
FIRST, SECOND = "a" * 64, "b" * 64
POD = f"/kubepods/burstable/pod{UID}"
WEB = PodFacts(
    "shop/web-0", QoSClass.LS, uid=UID, workload="StatefulSet/shop/web", containers=(PodContainer("app", FIRST),)
)


class Node:
    """A tree of directories, a table of pods, and the cgroups known of both."""

    def __init__(self, root: Path) -> None:
        self.mount = root / "cg"
        self.mount.mkdir()
        self.table = NO_PODS
        self.asked = 0
        walk = CgroupWalk(self.mount)
        self.seconds = 0.0
        self.known = KnownCgroups(
            walk,
            HostTree(root),
            Sources(),
            lambda: self.table,
            on_unknown_pods=self.ask,
            clock=lambda: self.seconds,
        )
        self.close = walk.close

    def ask(self) -> None:
        self.asked += 1

    def make(self, *paths: str) -> None:
        for path in paths:
            (self.mount / path.strip("/")).mkdir(parents=True)

    def publish(self, *pods: PodFacts) -> None:
        self.table = PodTable(pods, generation=self.table.generation + 1)

    def now(self, path: str) -> CgroupInfo:
        self.known.update(everything=True)
        return next(info for info in self.known.cgroups if info.path == path)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.close()


def test_a_pod_that_the_table_lacks_is_asked_for_and_named_as_soon_as_it_is_known(node: Node) -> None:
    node.publish()
    node.make(f"{POD}/{FIRST}")
    unknown = node.now(f"{POD}/{FIRST}")
    assert (unknown.kind, unknown.qos, unknown.name, node.asked) == (CgroupKind.PLAIN, "", FIRST, 1)
    node.publish(WEB)
    found = node.now(f"{POD}/{FIRST}")
    assert (found.kind, found.qos, found.name) == (CgroupKind.CONTAINER, "LS", "shop/web-0/app")
    assert node.now(POD).name == "shop/web-0"
    assert node.asked == 1


def test_a_source_is_not_asked_for_ever_about_a_directory_that_stays_unknown(node: Node) -> None:
    node.publish()
    node.make(POD)
    for _ in range(100):
        node.known.update()
    assert node.asked == 7


def test_nothing_is_described_anew_while_nothing_changes(node: Node) -> None:
    node.make(f"{POD}/{FIRST}")
    node.publish(WEB)
    node.known.update()
    before = node.known.cgroups
    node.known.update()
    assert node.known.cgroups is before
    node.publish(replace(WEB, containers=(replace(WEB.containers[0], restarts=1),)))
    node.known.update()
    assert node.known.cgroups is before


def test_a_change_of_a_label_is_followed(node: Node) -> None:
    node.make(f"{POD}/{FIRST}")
    node.publish(WEB)
    assert node.now(POD).qos == "LS"
    node.publish(replace(WEB, qos=QoSClass.BE))
    assert (node.now(POD).qos, node.now(f"{POD}/{FIRST}").qos) == ("BE", "BE")


def test_a_pod_stays_known_while_its_directory_outlives_it(node: Node) -> None:
    node.make(POD)
    node.publish(WEB)
    assert node.now(POD).name == "shop/web-0"
    node.publish()
    assert node.now(POD).name == "shop/web-0"


def test_instances_of_a_container_are_told_apart(node: Node) -> None:
    node.make(f"{POD}/{FIRST}", f"{POD}/{SECOND}")
    node.publish(replace(WEB, containers=(PodContainer("app", SECOND, earlier_ids=(FIRST,)),)))
    node.known.update()
    names = [node.known.name_of(f"{POD}/{each}") for each in (FIRST, SECOND)]
    assert names == ["shop/web-0/app [aaaaaaaaaaaa]", "shop/web-0/app [bbbbbbbbbbbb]"]
    (node.mount / f"{POD}/{FIRST}".strip("/")).rmdir()
    node.known.update(everything=True)
    names = [node.known.name_of(f"{POD}/{each}") for each in (FIRST, SECOND)]
    assert names == ["shop/web-0/app [aaaaaaaaaaaa]", "shop/web-0/app"]


def test_a_pod_of_a_name_used_again_keeps_the_workload_and_has_another_uid(node: Node) -> None:
    node.make(f"{POD}/{FIRST}")
    node.publish(WEB)
    before = node.now(f"{POD}/{FIRST}")
    again = f"/kubepods/burstable/pod{OTHER}"
    node.make(f"{again}/{SECOND}")
    node.publish(replace(WEB, uid=OTHER, containers=(PodContainer("app", SECOND),)))
    after = node.now(f"{again}/{SECOND}")
    assert (after.workload, after.container) == (before.workload, before.container)
    assert (before.pod_uid, after.pod_uid) == (UID, OTHER)
    assert node.known.name_of(after.path) != node.known.name_of(before.path)


def test_a_directory_that_is_given_to_a_user_is_no_pod_any_more(node: Node) -> None:
    if os.geteuid() != 0:
        pytest.skip("chown needs root")
    node.make(f"{POD}/{FIRST}")
    node.publish(WEB)
    assert node.now(f"{POD}/{FIRST}").pod == "web-0"
    os.chown(node.mount / POD.strip("/"), 1000, -1)
    taken = node.now(f"{POD}/{FIRST}")
    assert (taken.pod, taken.qos, taken.kind) == ("", "", CgroupKind.PLAIN)
    assert taken.owner_uid == 0


def test_a_users_directory_with_the_uid_of_a_pod_is_no_pod(node: Node) -> None:
    if os.geteuid() != 0:
        pytest.skip("chown needs root")
    mine: Callable[[str], str] = "/user.slice/user-1000.slice/{}".format
    node.make(mine(f"kubepods-pod{UID.replace('-', '_')}.slice"), mine(f"docker-{FIRST}.scope"), mine("shop.service"))
    os.chown(node.mount / "user.slice/user-1000.slice", 1000, -1)
    node.publish(WEB)
    for path in (mine(f"kubepods-pod{UID.replace('-', '_')}.slice"), mine(f"docker-{FIRST}.scope")):
        info = node.now(path)
        assert (info.qos, info.pod_uid, info.container_id, info.namespace) == ("", "", "", ""), path
    assert node.now(mine("shop.service")).workload == "/user.slice/user-*.slice/shop.service"


def test_host_applications_come_change_and_go(node: Node) -> None:
    node.make("/host/proxy/worker", "/other")
    assert node.now("/host/proxy").qos == ""
    for qos in (QoSClass.LS, QoSClass.BE):
        node.known.follow_applications({"/host/proxy": HostApplicationGroup("proxy", qos)})
        assert (node.now("/host/proxy").qos, node.now("/host/proxy/worker").qos, node.now("/other").qos) == (
            qos,
            qos,
            "",
        )
    before = node.known.cgroups
    node.known.follow_applications({"/host/proxy": HostApplicationGroup("proxy", QoSClass.BE)})
    assert node.known.cgroups is before
    node.known.follow_applications({})
    assert node.now("/host/proxy").qos == ""


def test_a_user_who_makes_up_names_gets_no_more_workloads_than_his_share(node: Node) -> None:
    if os.geteuid() != 0:
        pytest.skip("chown needs root")
    node.make("/user.slice/user-1000.slice", "/shop/web")
    os.chown(node.mount / "user.slice/user-1000.slice", 1000, -1)
    seen: set[str] = set()
    for turn in range(3):
        made = [f"/user.slice/user-1000.slice/{chr(97 + turn)}{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(60)]
        node.make(*made)
        node.known.update(everything=True)
        seen |= {info.workload for info in node.known.cgroups if info.path.startswith("/user.slice/user-1000")}
        for path in made:
            (node.mount / path.strip("/")).rmdir()
    assert len(seen) <= WORKLOADS_OF_OWNER + 1
    assert node.now("/shop/web").workload == "/shop/web"


def test_what_is_gone_is_known_for_some_minutes_and_not_for_ever(node: Node) -> None:
    """A cgroup each ten seconds for half an hour, each of which lives as long."""
    elsewhere = node.mount.parent / "gone"
    elsewhere.mkdir()
    gone: list[tuple[int, str]] = []
    for number in range(180):
        path = f"/job-{number}"
        node.make(path)
        gone.append((node.now(path).id, path))
        node.seconds += 10.0
        (node.mount / path.strip("/")).rename(elsewhere / str(number))  # its inode is no other's
        node.known.update(everything=True)
        assert node.known.path_of(gone[-1][0]) == path, "its last counters are told of under its name"
    known = [path for identity, path in gone if node.known.path_of(identity) is not None]
    assert known == [path for _, path in gone[-int(REMEMBERED_SECONDS / 10) - 1 :]]
    assert [path for _, path in gone if node.known._names.at(path)] == known
