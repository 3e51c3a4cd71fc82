"""The client against two ResourceManagers that answer as Hadoop documents."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from api.settings import SettingsError, convert
from controllers.yarn.protocol import Capability
from controllers.yarn.resource_managers import RefusedError, ResourceManagers, UnreachableError, YarnError
from controllers.yarn.settings import ClusterSettings, CopilotSettings
from tests.controllers.yarn.hadoop import Yarn, served


@pytest.fixture
def yarn() -> Iterator[Yarn]:
    with served() as state:
        state.add("w1:45454", (8, 8192), used=(2, 1024))
        yield state


def client(yarn: Yarn, *addresses: str, **options: Any) -> ResourceManagers:
    options = {"user": "yarn", **options}
    return ResourceManagers("main", ClusterSettings(addresses=addresses or tuple(yarn.urls), **options))


def test_nodes_of_the_active_one(yarn: Yarn) -> None:
    reports = client(yarn).nodes()
    assert reports["w1:45454"].total == Capability(8, 8192)
    assert reports["w1:45454"].used == Capability(2, 1024)


def test_setting_a_resource(yarn: Yarn) -> None:
    managers = client(yarn)
    managers.nodes()
    managers.set_resource("w1:45454", Capability(3, 2048), 30.0)
    assert yarn.set == [("w1:45454", {"resource": {"memory": 2048, "vCores": 3}, "overCommitTimeout": 30000})]
    assert managers.nodes()["w1:45454"].total == Capability(3, 2048)


def test_the_standby_is_passed_over_and_the_active_one_kept(yarn: Yarn) -> None:
    yarn.fail_over(1)
    managers = client(yarn)
    managers.nodes()
    assert managers.active == yarn.urls[1]
    yarn.asked.clear()
    managers.nodes()
    assert [number for number, _, _ in yarn.asked] == [1]
    yarn.fail_over(0)
    managers.nodes()
    assert managers.active == yarn.urls[0]


def test_without_an_active_one_there_is_no_answer(yarn: Yarn) -> None:
    yarn.fail_over(None)
    managers = client(yarn)
    with pytest.raises(UnreachableError, match="no list of nodes"):
        managers.nodes()
    with pytest.raises(UnreachableError, match="no ResourceManager is known to be active"):
        managers.set_resource("w1:45454", Capability(1, 1), -1)


def test_a_dead_one_is_passed_over(yarn: Yarn) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert client(yarn, dead, yarn.urls[0]).nodes()
        with pytest.raises(UnreachableError, match="no answer"):
            client(yarn, dead).nodes()


def test_one_that_accepts_and_is_silent(yarn: Yarn) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        managers = client(yarn, address, yarn.urls[0], timeout_seconds=0.2)
        assert managers.nodes()
        assert managers.active == yarn.urls[0]


def test_one_whose_answer_drips() -> None:
    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
            while True:
                connection.sendall(b" ")
                time.sleep(0.01)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server,), daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        managers = ResourceManagers("main", ClusterSettings(addresses=(address,), timeout_seconds=0.5))
        managers.active = address
        with pytest.raises(UnreachableError, match="not whole within"):
            managers.set_resource("w1:45454", Capability(1, 1), -1)
        thread.join(5)
        assert not thread.is_alive(), "the connection is closed"


def test_a_fail_over_between_question_and_change_changes_nothing(yarn: Yarn) -> None:
    managers = client(yarn)
    managers.nodes()
    yarn.fail_over(1)
    with pytest.raises(UnreachableError, match="standby"):
        managers.set_resource("w1:45454", Capability(1, 1024), -1)
    assert not yarn.set


def test_a_request_without_authentication_names_the_remedy(yarn: Yarn) -> None:
    yarn.authenticate = True
    managers = client(yarn, user="")
    with pytest.raises(RefusedError, match=r"401 .*Authentication required.*\[clusters.main\] user"):
        managers.nodes()


def test_a_user_who_is_no_administrator(yarn: Yarn) -> None:
    managers = client(yarn, user="guest")
    managers.nodes()
    with pytest.raises(RefusedError, match=r"403 ForbiddenException: .*yarn.admin.acl"):
        managers.set_resource("w1:45454", Capability(1, 1), -1)


def test_a_node_that_is_gone_is_no_fault_of_the_others(yarn: Yarn) -> None:
    managers = client(yarn)
    managers.nodes()
    with pytest.raises(YarnError, match="404 NotFoundException") as error:
        managers.set_resource("w9:1", Capability(1, 1), -1)
    assert not isinstance(error.value, RefusedError | UnreachableError)


@pytest.mark.parametrize(
    ("status", "raw"),
    [
        pytest.param(500, b"{}", id="error"),
        pytest.param(503, b"", id="unavailable"),
        pytest.param(200, b"<html>", id="page"),
        pytest.param(200, b'{"nodes":[]}', id="other-form"),
    ],
)
def test_answers_that_are_none(yarn: Yarn, status: int, raw: bytes) -> None:
    yarn.status, yarn.raw = status, raw
    with pytest.raises(YarnError):
        client(yarn).nodes()


def test_a_redirection_elsewhere_is_not_followed(yarn: Yarn) -> None:
    with served() as other:
        yarn.fail_over(1)
        address, yarn.urls[1] = yarn.urls[0], other.urls[0]
        with pytest.raises(UnreachableError, match="is active"):
            client(yarn, address).nodes()
        assert not other.asked


def test_a_token_is_read_anew_and_sent_over_https_only(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="https"):
        convert(
            {"clusters": {"a": {"addresses": ["http://rm:8088"], "token_file": "/t"}}}, CopilotSettings, "yarn.toml"
        )
    settings = ClusterSettings(addresses=("https://127.0.0.1:1",), token_file=str(tmp_path / "absent"))
    with pytest.raises(RefusedError, match="token_file"):
        ResourceManagers("main", settings).nodes()


def test_an_authority_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("none")
    with pytest.raises(YarnError, match="ca_file"):
        ResourceManagers("main", ClusterSettings(addresses=("https://rm:8090",), ca_file=str(file)))
