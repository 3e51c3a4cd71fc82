"""Migrations at a real API server, with the rights that the chart gives koord-descheduler and no others.

Requests are lost at every step, before they arrive and after.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.crds import DEFINITIONS, definition_document
from api.kube.objects import Pod
from cluster import (
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    ApiError,
    Client,
    ClientSettings,
    ClusterError,
    DeleteOptions,
    EventRecorder,
    Forbidden,
    Key,
    Query,
    RecorderSettings,
    Unavailable,
    connect,
    merge_patch,
)
from controllers.descheduler.kinds import EVERYTHING, MIGRATION, RESERVATION
from controllers.migration.migrations import Migrations
from controllers.migration.settings import MigrationArgs
from controllers.runtime.loop import view_once
from tests.cluster import apiserver
from tests.cluster_e2e.test_webhooks import ACCOUNTS, FAST, OF_THE_MANAGER, token
from tests.deploy.charts import documents
from tests.deploy.node_reports import kubeconfig_with
from tests.managed import running_on
from tests.waiting import wait_for

pytestmark = pytest.mark.cluster

REPLICAS = 5
ARGS = MigrationArgs(evict_qps=100.0, evict_burst=10, max_migrating_per_node=None)
READY = [{"type": "Ready", "status": "True"}]
RAW_JOB, RAW_PLACE = MIGRATION.of(dict), RESERVATION.of(dict)


class Site:
    """An API server without controllers: the test plays ReplicaSet, scheduler and kubelets."""

    def __init__(self, admin: Client, descheduler: Client, account: Path) -> None:
        self.admin = admin
        self.descheduler = descheduler
        self.account = account
        """Kubeconfig of the descheduler."""
        self.numbers = itertools.count()
        self.to = "b"
        """Node that the scheduler finds."""
        resources = {"cpu": "10", "memory": "100Gi", "pods": "110"}
        for name in ("a", "b"):
            admin.create(NODES, {"metadata": {"name": name}})
            status = {"capacity": resources, "allocatable": resources, "conditions": READY}
            admin.patch(NODES, Key("", name), merge_patch({"status": status}), subresource="status")
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"replicas": REPLICAS, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        made = admin.create(REPLICA_SETS, {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec})
        seen = {"replicas": REPLICAS, "observedGeneration": made["metadata"]["generation"]}
        admin.patch(REPLICA_SETS, Key("shop", "web"), merge_patch({"status": seen}), subresource="status")
        self.owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": made["metadata"]["uid"]}
        for _ in range(REPLICAS):
            self.pod("a")

    def pods(self) -> list[dict[str, Any]]:
        return [item.value for item in self.admin.list(PODS, Query(namespace="shop")).items if item.value]

    def pod(self, node: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
        meta = {
            "name": f"web-{next(self.numbers)}",
            "namespace": "shop",
            "labels": {"app": "web"},
            "annotations": annotations or {},
            "ownerReferences": [{**self.owner, "controller": True}],
        }
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        spec = {"nodeName": node, "schedulerName": "koord-scheduler", "containers": [container]}
        made = self.admin.create(PODS, {"metadata": meta, "spec": spec})
        status = {"phase": "Running", "conditions": READY}
        self.admin.patch(
            PODS, Key("shop", made["metadata"]["name"]), merge_patch({"status": status}), subresource="status"
        )
        return made

    def act(self) -> None:
        """Play everybody once."""
        for item in self.admin.list(RAW_PLACE).items:
            place = item.value or {}
            if not (place.get("status") or {}).get("phase"):
                status = {"phase": "Available", "nodeName": self.to}
                self.admin.patch(RAW_PLACE, item.identity.key, merge_patch({"status": status}), subresource="status")
        listed = self.pods()
        for pod in listed:
            if pod["metadata"].get("deletionTimestamp"):
                key = Key("shop", pod["metadata"]["name"])
                with contextlib.suppress(ApiError):
                    self.admin.delete(PODS, key, DeleteOptions(grace_period_seconds=0))
        places = [item.value for item in self.admin.list(RAW_PLACE).items if item.value]
        free = next((each for each in places if (each.get("status") or {}).get("phase") == "Available"), None)
        if len(listed) < REPLICAS and free is not None:
            uid, name = free["metadata"]["uid"], free["metadata"]["name"]
            self.pod(
                self.to, {"scheduling.koordinator.sh/reservation-allocated": json.dumps({"name": name, "uid": uid})}
            )
            body = merge_patch({"status": {"phase": "Succeeded"}})
            self.admin.patch(RAW_PLACE, Key("", name), body, subresource="status")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("migrations")
    with (
        apiserver.running(Path(os.environ["KUBEBUILDER_ASSETS"]), folder) as kubeconfig,
        contextlib.ExitStack() as stack,
    ):
        admin = stack.enter_context(contextlib.closing(connect(FAST, kubeconfig=kubeconfig)))
        for definition in DEFINITIONS:
            admin.create(CUSTOM_RESOURCE_DEFINITIONS, definition_document(definition))
        for name in ("shop", "koord-system"):
            admin.create(NAMESPACES, {"metadata": {"name": name}})
        admin.create(ACCOUNTS, {"metadata": {"name": "koord-descheduler", "namespace": "koord-system"}})
        for document in documents({"descheduler": {"enabled": True}}):
            if document["metadata"]["name"] == "koord-descheduler" and document["kind"] in OF_THE_MANAGER:
                admin.create(OF_THE_MANAGER[document["kind"]], document)
        wait_for(lambda: served(admin))
        file = kubeconfig_with(kubeconfig, token(admin, "koord-descheduler", "koord-system"), folder / "account")
        descheduler = stack.enter_context(contextlib.closing(connect(FAST, kubeconfig=file)))
        yield Site(admin, descheduler, file)


def served(client: Client) -> bool:
    with contextlib.suppress(ClusterError):
        return client.list(RAW_JOB) is not None and client.list(RAW_PLACE) is not None
    return False


class Move:
    """One job for the oldest pod, watched until it ends."""

    def __init__(self, site: Site, name: str) -> None:
        self.site, self.name = site, name
        old = site.pods()[0]
        site.to = "a" if old["spec"]["nodeName"] == "b" else "b"
        reference = {"namespace": "shop", "name": old["metadata"]["name"], "uid": old["metadata"]["uid"]}
        spec = {"podRef": reference, "mode": "ReservationFirst", "ttl": "5m"}
        site.admin.create(RAW_JOB, {"metadata": {"name": name}, "spec": spec})

    def status(self) -> dict[str, Any]:
        return self.site.admin.get(RAW_JOB, Key("", self.name)).get("status") or {}

    def ended(self) -> bool:
        """Play everybody, and check that a pod is away only while, or after, a place was there for its successor."""
        alive = [each for each in self.site.pods() if not each["metadata"].get("deletionTimestamp")]
        assert len(alive) >= REPLICAS - 1
        if len(alive) < REPLICAS:
            places = [item.value or {} for item in self.site.admin.list(RAW_PLACE).items]
            assert any((place.get("status") or {}).get("phase") == "Available" for place in places)
        self.site.act()
        return self.status().get("phase") in ("Succeeded", "Failed")

    def end(self, writer: Client | None = None, recorder: EventRecorder | None = None) -> dict[str, Any]:
        controllers = {"migration": Migrations(ARGS, "me")}
        with running_on(self.site.descheduler, controllers, writer, recorder=recorder):
            wait_for(self.ended, 60.0, interval_seconds=0.05, check=lambda: str(self.status()))
        return self.status()


def test_a_pod_moves_with_the_rights_of_the_chart(site: Site) -> None:
    recorder = EventRecorder(site.descheduler, RecorderSettings("koord-descheduler", "me"))
    recorder.start()
    done = Move(site, "job").end(recorder=recorder)
    recorder.stop()
    assert (done["phase"], done["status"], done["nodeName"]) == ("Succeeded", "Complete", "b")
    reasons = {item.value["reason"] for item in site.admin.list(EVENTS).items if item.value}
    assert {"ReservationCreated", "ReservationScheduled", "Evicting", "Descheduled", "Complete"} <= reasons


class Lossy:
    """Loses the request number `at` before it is sent, and the answer of the next one."""

    def __init__(self, client: Client, at: int) -> None:
        self.sent, self.lost = 0, 0
        self._send, self._at = client.send, at
        client.send = self.send  # type: ignore[method-assign]

    def send(self, request: Any, *arguments: Any, **more: Any) -> Any:
        self.sent += 1
        if self.sent == self._at:
            self.lost += 1
            raise Unavailable("lost before it was sent")
        answer = self._send(request, *arguments, **more)
        if self.sent == self._at + 1:
            self.lost += 1
            raise Unavailable("its answer was lost")
        return answer


@pytest.mark.parametrize("at", range(1, 10, 2), ids=str)
def test_requests_that_are_lost_at_any_step_cost_no_pod(site: Site, at: int) -> None:
    move = Move(site, f"lossy-{at}")
    once = ClientSettings(requests_per_second=1000, burst=1000, attempts=1, timeout_seconds=3.0)
    with contextlib.closing(connect(once, kubeconfig=site.account)) as writer:
        lossy = Lossy(writer, at)
        done = move.end(writer)
    assert done["phase"] == "Succeeded", done
    assert lossy.lost == 2, f"the move took {lossy.sent} requests"
    assert len(site.pods()) == REPLICAS
    assert {each["type"]: each["status"] for each in done["conditions"]}["Eviction"] == "True"
    places = [item.value or {} for item in site.admin.list(RAW_PLACE).items]
    assert sum((place.get("status") or {}).get("phase") == "Available" for place in places) == 0, "one place was made"


def test_every_kind_is_listed_and_nothing_beside(site: Site) -> None:
    found = view_once(site.descheduler, {"migration": Migrations(ARGS, "me")})["migration"]
    assert all(found.objects(kind) is not None for kind in EVERYTHING)
    pod = Key("shop", site.pods()[0]["metadata"]["name"])
    for write in (
        lambda: site.descheduler.delete(PODS, pod),
        lambda: site.descheduler.patch(PODS, pod, merge_patch({"metadata": {"labels": {"a": "b"}}})),
        lambda: site.descheduler.patch(NODES, Key("", "a"), merge_patch({"spec": {"unschedulable": True}})),
        lambda: site.descheduler.list(EVENTS),
    ):
        with pytest.raises(Forbidden):
            write()


def test_pods_as_stored_decode_as_the_descheduler_reads_them(site: Site) -> None:
    assert all(msgspec.convert(each, Pod).spec.scheduler_name == "koord-scheduler" for each in site.pods())
