"""The node's programs by name: started in order, and stopped, frozen, killed and started again by tests of outages."""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster_e2e.processes import Started, end_of, start, stop
from tests.cluster_e2e.record import Record

_LOG_END_CHARS = 600


@dataclass
class Programs:
    """Programs that run for a node, each with a log of its name in the node's directory."""

    record: Record
    environment: Mapping[str, str]
    commands: dict[str, list[str | Path]] = field(default_factory=dict)

    def launch(self, name: str, command: list[str | Path]) -> None:
        """Start a program for the first time."""
        self.commands[name] = command
        self.resume(name)

    def resume(self, name: str) -> None:
        """Start a program as it was started before."""
        begun = start(name, self.commands[name], self.log(name), self.environment)
        self.record.started.append(begun)
        self.record.save()

    def stop(self, name: str) -> None:
        """End a program in order."""
        stop(self._of(name))
        self._forget(name)

    def kill(self, name: str) -> None:
        """End a program by SIGKILL."""
        self.signal(name, signal.SIGKILL)
        self.stop(name)

    def restart(self, name: str) -> None:
        """End a program in order and start it again."""
        self.stop(name)
        self.resume(name)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal."""
        process = self._of(name)
        assert process.is_alive, f"{name} ended\n{end_of(self.log(name))}"
        os.kill(process.pid, number)

    def log(self, name: str) -> Path:
        """Return the path of a program's log."""
        return self.record.path / f"{name}.log"

    def check(self) -> str:
        """Return the ends of all logs; raises AssertionError where a program has ended by itself."""
        ended = [each for each in self.record.started if not each.is_alive]
        assert not ended, f"{ended[0].name} ended\n{end_of(self.log(ended[0].name))}"
        return "\n".join(
            f"{each.name}: {end_of(self.log(each.name))[-_LOG_END_CHARS:]}" for each in self.record.started
        )

    def _of(self, name: str) -> Started:
        return next(each for each in self.record.started if each.name == name)

    def _forget(self, name: str) -> None:
        self.record.started = [each for each in self.record.started if each.name != name]
        self.record.save()
