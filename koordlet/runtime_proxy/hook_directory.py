"""Directory of registration files, read again when a file appeared, changed or disappeared."""

import logging
import os
import stat
from pathlib import Path

from koordlet.runtime_proxy.hook_types import HookType
from koordlet.runtime_proxy.registration import MAX_FILE_BYTES, HookServer, RegistrationInvalid, parse_registration

_log = logging.getLogger(__name__)

_Signature = tuple[tuple[str, int, int, int, int], ...]


class HookDirectory:
    """Hook servers of a directory, in order of file names.

    Each look costs one `stat` per file, so that a registration holds from the next call on and needs no watcher.
    A file that became invalid keeps its last valid content; files that others may write are refused.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._signature: _Signature | None = None
        self._servers: dict[str, HookServer] = {}

    def of(self, hook: HookType) -> tuple[HookServer, ...]:
        """Return the servers that listed the hook."""
        self.refresh()
        return tuple(server for server in self._servers.values() if hook in server.hooks)

    def servers(self) -> tuple[HookServer, ...]:
        """Return all servers."""
        self.refresh()
        return tuple(self._servers.values())

    def refresh(self) -> None:
        """Read the files again if any changed."""
        signature = self._look()
        if signature == self._signature:
            return
        self._signature = signature
        before, self._servers = self._servers, {}
        for name, *_ in signature:
            server = self._read(name) or before.get(name)
            if server:
                self._servers[name] = server
        for name in before.keys() - self._servers.keys():
            _log.info("hook server %s is no longer registered", name)
        for name, server in self._servers.items():
            if server != before.get(name):
                hooks = ", ".join(sorted(hook.value for hook in server.hooks)) or "no hooks"
                _log.info("hook server %s on %s, policy %s: %s", name, server.socket, server.policy.value, hooks)
                if server.unknown_hooks:
                    _log.warning("%s: unknown runtime-hooks are not called: %s", name, ", ".join(server.unknown_hooks))

    def _look(self) -> _Signature:
        found = []
        try:
            names = sorted(entry.name for entry in self._path.iterdir() if entry.name.endswith("json"))
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            _log.warning("hook servers: %s: %s", self._path, error.strerror)
            return self._signature or ()
        for name in names:
            try:
                status = (self._path / name).stat()
            except OSError:
                continue  # gone meanwhile
            found.append((name, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size))
        return tuple(found)

    def _check_directory(self) -> None:
        """Raise RegistrationInvalid for a directory in which another user can replace a file of root's."""
        status = self._path.stat()
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & stat.S_IWOTH:
            raise RegistrationInvalid(f"{self._path}: other users may write there; chown root, chmod o-w")

    def _read(self, name: str) -> HookServer | None:
        path = self._path / name
        try:
            status = path.stat()
            mode = status.st_mode
            if not stat.S_ISREG(mode):  # opening a pipe would wait for its writer
                raise RegistrationInvalid(f"{path}: no regular file")
            if mode & stat.S_IWOTH:
                raise RegistrationInvalid(f"{path}: writable by every user; chmod o-w")
            if status.st_uid not in (0, os.geteuid()):
                raise RegistrationInvalid(f"{path}: belongs to user {status.st_uid}; chown root")
            self._check_directory()
            with path.open("rb") as file:
                return parse_registration(str(path), file.read(MAX_FILE_BYTES + 1))
        except OSError as error:
            _log.warning("hook server not registered: %s: %s", path, error.strerror)
        except RegistrationInvalid as error:
            _log.warning("hook server not registered: %s", error)
        return None
