"""A socket's mode is right from its first moment, whatever other threads make meanwhile."""

import os
import socket
import stat
from pathlib import Path

import pytest

from koordlet.serving.socket_file import is_served, prepare_socket, private_place


def test_it_appears_with_its_mode_and_other_files_keep_theirs(tmp_path: Path) -> None:
    path = tmp_path / "run/agent.sock"
    prepare_socket(path)
    before = os.umask(0)
    try:
        with socket.socket(socket.AF_UNIX) as server, private_place(path) as place:
            server.bind(str(place))
            server.listen()
            assert not path.exists()
            assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
            other = tmp_path / "of another thread"
            other.mkdir(mode=0o755)
            assert stat.S_IMODE(other.stat().st_mode) == 0o755
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_server_at_its_place_is_reached(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX) as server:
        with private_place(path) as place:
            server.bind(str(place))
            server.listen()
        assert is_served(path)
    assert not is_served(path)


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), private_place(tmp_path / "agent.sock"):
        pass
    assert list(tmp_path.iterdir()) == []
