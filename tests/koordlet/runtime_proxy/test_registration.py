"""Registration files: the format, and a directory of good, torn and hostile ones."""

import os
from pathlib import Path

import pytest

from koordlet.runtime_proxy.hook_directory import HookDirectory
from koordlet.runtime_proxy.hook_types import HookType
from koordlet.runtime_proxy.registration import (
    FailurePolicy,
    HookServer,
    RegistrationInvalid,
    format_registration,
    parse_registration,
)

KOORDLET = b"""{
	"remote-endpoint": "/host-var-run-koordlet/koordlet.sock",
	"failure-policy": "Ignore",
	"runtime-hooks": ["PreRunPodSandbox", "PreCreateContainer", "PreRemoveRunPodSandbox", "New"]
}"""


def test_the_file_that_koordinator_writes() -> None:
    assert parse_registration("/etc/runtime/hookserver.d/koordlet.json", KOORDLET) == HookServer(
        "koordlet.json",
        "/host-var-run-koordlet/koordlet.sock",
        FailurePolicy.IGNORE,
        frozenset({HookType.PRE_RUN_POD_SANDBOX, HookType.PRE_CREATE_CONTAINER}),
        ("New",),
    )


@pytest.mark.parametrize(
    ("text", "socket", "policy"),
    [
        pytest.param('{"remote-endpoint": "unix:///run/a.sock"}', "/run/a.sock", FailurePolicy.IGNORE, id="url"),
        pytest.param('{"remote-endpoint": "unix:/run/a.sock"}', "/run/a.sock", FailurePolicy.IGNORE, id="short-url"),
        pytest.param(
            '{"remote-endpoint": "/a", "failure-policy": "Fail", "later": 1}', "/a", FailurePolicy.FAIL, id="fail"
        ),
    ],
)
def test_accepted(text: str, socket: str, policy: FailurePolicy) -> None:
    server = parse_registration("/d/a.json", text.encode())
    assert (server.socket, server.policy, server.hooks) == (socket, policy, frozenset())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"", "/d/a.json", id="empty"),
        pytest.param(KOORDLET[:40], "/d/a.json", id="torn"),
        pytest.param(b"\xff\xfe", "/d/a.json", id="not-utf-8"),
        pytest.param(b"[]", "/d/a.json", id="not-an-object"),
        pytest.param(b'{"remote-endpoint": 5}', "remote-endpoint", id="type"),
        pytest.param(b"{}", "remote-endpoint", id="no-endpoint"),
        pytest.param(b'{"remote-endpoint": "run/a.sock"}', "absolute path", id="relative"),
        pytest.param(b'{"remote-endpoint": "/a", "failure-policy": "fail"}', "failure-policy", id="policy"),
        pytest.param(b'{"remote-endpoint": "/a", "runtime-hooks": "x"}', "runtime-hooks", id="hooks"),
        pytest.param(b" " * 70_000, "larger than", id="large"),
        pytest.param(b"[" * 60_000, "/d/a.json", id="deep"),
    ],
)
def test_refused(data: bytes, words: str) -> None:
    with pytest.raises(RegistrationInvalid, match=words):
        parse_registration("/d/a.json", data)


def test_what_is_written_is_read() -> None:
    server = HookServer("a.json", "/run/a.sock", FailurePolicy.FAIL, frozenset(HookType))
    assert parse_registration("/d/a.json", format_registration(server)) == server


def names(directory: HookDirectory) -> list[str]:
    """Return the names of the servers in their order."""
    return [server.name for server in directory.servers()]


def test_a_directory_follows_its_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "hookserver.d"
    directory = HookDirectory(path)
    assert names(directory) == []
    path.mkdir()
    for name in ("b.json", "a.json", "readme.txt", "ajson"):
        (path / name).write_bytes(KOORDLET)
    (path / "dir.json").mkdir()
    os.mkfifo(path / "pipe.json")
    (path / "dangling.json").symlink_to("nowhere")
    assert names(directory) == ["a.json", "ajson", "b.json"]
    (path / "a.json").unlink()
    (path / "ajson").unlink()
    assert names(directory) == ["b.json"]
    assert "dir.json: no regular file" in caplog.text
    assert "pipe.json: no regular file" in caplog.text


def test_an_invalid_file_keeps_its_last_content_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(KOORDLET)
    directory = HookDirectory(tmp_path)
    before = directory.servers()
    file.write_bytes(KOORDLET[:50])
    assert directory.servers() == before
    assert directory.servers() == before
    assert caplog.text.count("not registered") == 1
    file.write_bytes(KOORDLET.replace(b"Ignore", b"Fail"))
    assert directory.servers()[0].policy is FailurePolicy.FAIL


def test_a_replaced_file_of_the_same_size_is_seen(tmp_path: Path) -> None:
    file, other = tmp_path / "a.json", tmp_path / "new"
    file.write_bytes(KOORDLET)
    os.utime(file, ns=(1, 1))
    directory = HookDirectory(tmp_path)
    assert directory.servers()[0].socket.endswith("/koordlet.sock")
    other.write_bytes(KOORDLET.replace(b"/koordlet.sock", b"/koordlat.sock"))
    os.utime(other, ns=(1, 1))
    other.rename(file)
    assert directory.servers()[0].socket.endswith("/koordlat.sock")


def test_a_file_that_everybody_may_write_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(KOORDLET)
    file.chmod(0o666)
    assert HookDirectory(tmp_path).servers() == ()
    assert "chmod o-w" in caplog.text


def test_only_listed_hooks(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(KOORDLET)
    directory = HookDirectory(tmp_path)
    assert len(directory.of(HookType.PRE_RUN_POD_SANDBOX)) == 1
    assert directory.of(HookType.POST_STOP_CONTAINER) == ()


def test_a_directory_in_which_everybody_writes_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "hooks"
    directory.mkdir()
    (directory / "a.json").write_bytes(KOORDLET)
    directory.chmod(0o777)
    assert HookDirectory(directory).servers() == ()
    assert "chown root, chmod o-w" in caplog.text
    directory.chmod(0o755)
    assert len(HookDirectory(directory).servers()) == 1
