"""The agent's DaemonSet: when a rollout hands over, and how its pods restore their nodes before an uninstallation."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import DAEMON_SETS, NAMESPACES, Client, Document, Key
from cluster.twin import Twin
from koordlet.kube import rollout
from koordlet.kube.rollout import is_under_way, key_of, restore_nodes, restoring, rollout_in_sight, waiting_nodes
from tests.deploy.charts import one

KEY = Key("koord-system", "koordlet")


def daemon_set(*, generation: int = 2, spec: dict[str, Any] | None = None, **status: int) -> Document:
    seen = {"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberReady": 3}
    return {"metadata": {"generation": generation}, "spec": spec or {}, "status": seen | status}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(daemon_set(), False, id="nothing-changes"),
        pytest.param(daemon_set(updatedNumberScheduled=2), True, id="older-pods-are-left"),
        pytest.param(daemon_set(generation=3), True, id="not-seen-by-the-controller"),
        pytest.param(daemon_set(numberReady=0), False, id="pods-restart"),
        pytest.param(
            daemon_set(updatedNumberScheduled=2) | {"metadata": {"generation": 2, "deletionTimestamp": "2026-01-01"}},
            False,
            id="deleted",
        ),
        pytest.param(
            daemon_set(updatedNumberScheduled=0, spec={"updateStrategy": {"type": "OnDelete"}}), False, id="on-delete"
        ),
        pytest.param({}, False, id="empty"),
    ],
)
def test_a_rollout_is_under_way_while_older_pods_are_replaced(found: Document, expected: bool) -> None:
    assert is_under_way(found) == expected


@pytest.mark.parametrize("text", ["koordlet", "/koordlet", "koord-system/", "a/b/c", ""])
def test_a_name_without_a_namespace_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="namespace/name"):
        key_of(text)


def test_all_restore_with_what_an_enforcing_agent_has() -> None:
    for enforces in (False, True):
        found = one("DaemonSet", {"koordlet": {"enforce": enforces}})
        pod = restoring(found)["spec"]["template"]["spec"]
        (restorer,) = pod["initContainers"]
        assert restorer["command"] == ["koordlet", "restore"]
        assert restorer["args"] == ["--config=/etc/koord/koordlet.toml", "--all", "--wait=90"]
        (cgroups,) = (each for each in restorer["volumeMounts"] if each["mountPath"] == "/sys/fs/cgroup")
        assert not cgroups.get("readOnly", False)
        assert {"DAC_OVERRIDE", "SYS_RESOURCE"} <= set(restorer["securityContext"]["capabilities"]["add"])
        (agent,) = pod["containers"]
        assert agent["command"] == ["koordlet", "restore"], "a program that every image of the agent has"
        assert agent["args"] == [*restorer["args"], "--stay"]
        assert not {"livenessProbe", "readinessProbe", "ports"} & agent.keys()
        assert not rollout.enforces(restoring(found))
        assert rollout.enforces(found) == enforces


@pytest.mark.parametrize(
    ("args", "config"),
    [
        pytest.param(["--config", "/etc/a.toml", "--enforce"], ["--config=/etc/a.toml"], id="two-arguments"),
        pytest.param(["--config=/etc/a.toml", "--config", "/b"], ["--config=/b"], id="the-last"),
        pytest.param(["--enforce", "--config"], [], id="without-a-path"),
        pytest.param(["--config-map=/etc/a.toml", "--configure"], [], id="other-flags"),
    ],
)
def test_the_restorer_reads_the_settings_of_the_agent(args: list[str], config: list[str]) -> None:
    found = one("DaemonSet", {"koordlet": {"enforce": True}})
    (agent,) = found["spec"]["template"]["spec"]["containers"]
    agent["args"] = args
    (restorer,) = restoring(found)["spec"]["template"]["spec"]["initContainers"]
    assert restorer["args"] == [*config, "--all", "--wait=90"]


def test_nodes_are_waited_for_until_their_new_pod_is_ready() -> None:
    assert waiting_nodes(daemon_set(generation=3)) is None
    assert waiting_nodes(daemon_set(numberReady=1)) == 2
    assert waiting_nodes(daemon_set(updatedNumberScheduled=0)) == 3
    assert waiting_nodes(daemon_set()) == 0


@pytest.fixture
def twin() -> Iterator[Twin]:
    with Twin() as running:
        yield running


@pytest.fixture
def client(twin: Twin) -> Iterator[Client]:
    with twin.client() as opened:
        opened.create(NAMESPACES, {"metadata": {"name": KEY.namespace}})
        yield opened


def set_status(client: Client, **status: int) -> None:
    found = client.get(DAEMON_SETS, KEY)
    seen = {"observedGeneration": found["metadata"].get("generation", 0)}
    client.update(DAEMON_SETS, found | {"status": seen | status}, subresource="status")


def asked(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(rollout, "load_endpoint", lambda **_: twin.endpoint())
    return rollout_in_sight(KEY)


@pytest.mark.parametrize("enforces", [True, False])
def test_the_api_server_is_asked_once(
    twin: Twin, client: Client, monkeypatch: pytest.MonkeyPatch, enforces: bool
) -> None:
    assert not asked(twin, monkeypatch)
    client.create(DAEMON_SETS, one("DaemonSet", {"koordlet": {"enforce": enforces}}))
    set_status(client, desiredNumberScheduled=2, updatedNumberScheduled=2)
    assert not asked(twin, monkeypatch)
    set_status(client, desiredNumberScheduled=2, updatedNumberScheduled=1)
    assert asked(twin, monkeypatch) == enforces


def test_no_api_server_is_no_rollout(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert not rollout_in_sight(KEY, str(tmp_path / "missing"))
    assert "cannot be asked" in caplog.text


def test_restoring_nodes_changes_the_pods_and_says_which_have_not(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "_POLL_SECONDS", 0.01)
    assert restore_nodes(client, KEY, 1.0) is None
    client.create(DAEMON_SETS, one("DaemonSet", {"koordlet": {"enforce": True}}))
    assert restore_nodes(client, KEY, 0.1) in (-1, 0)
    assert client.get(DAEMON_SETS, KEY)["spec"]["template"]["spec"]["initContainers"][0]["name"] == "restore"
