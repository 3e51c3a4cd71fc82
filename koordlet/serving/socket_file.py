"""Path of the unix socket: accessible to its owner only, and never taken from a running server."""

import contextlib
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

MAX_PATH_BYTES = 107
"""Length limit of sockaddr_un (unix(7))."""
_PLACE_BYTES = len("/.xxxxxxxx/s")
"""Of the place that a socket is bound at, below its directory."""


class SocketUnusable(Exception):
    """The server cannot listen on the socket; the message names the path, and `remedy` says how to mend it."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


def prepare_socket(path: Path, setting: str = "[serving] socket") -> None:
    """Make the directory and remove the socket of a dead server. Raises SocketUnusable, also while another one
    listens; its remedy names the setting."""
    if max(len(os.fsencode(path)), len(os.fsencode(path.parent)) + _PLACE_BYTES) > MAX_PATH_BYTES:
        raise SocketUnusable(f"{path}: longer than {MAX_PATH_BYTES} bytes", f"set a shorter {setting}")
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise SocketUnusable(f"{path}: {error.strerror}", f"set another {setting}") from error
    if not stat.S_ISSOCK(kind):
        raise SocketUnusable(f"{path} exists and is no socket", f"remove it, or set another {setting}")
    if is_served(path):
        raise SocketUnusable(f"another process serves on {path}", f"stop it, or set another {setting}")
    path.unlink(missing_ok=True)


def is_served(path: Path) -> bool:
    """Return whether a process listens on the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # a full backlog or a slow process: a server is there
            return True
    return True


@contextlib.contextmanager
def private_place(path: Path) -> Iterator[Path]:
    """The place to bind the socket to: in a directory that only the owner may enter.

    At the end of the block it moves to `path`, which has mode 0600 from its first moment. The umask would do so too,
    but it is that of all threads: what another one makes meanwhile, a directory say, would get it.
    """
    directory = Path(tempfile.mkdtemp(prefix=".", dir=path.parent))
    made = directory / "s"
    try:
        yield made
        made.chmod(0o600)
        made.rename(path)
    finally:
        made.unlink(missing_ok=True)
        directory.rmdir()
