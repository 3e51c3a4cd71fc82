"""The enforcer's hands: the one place where anything is read, written or signalled; and hands that only pretend.

A dry run uses the pretending hands and differs in nothing else. What they were told to write reads back as if it
stood there, until somebody changes what really does.
"""

import signal
from collections.abc import Collection, Sequence
from pathlib import Path

from koordlet.host.attribute_formats import Format, spelled
from koordlet.host.attributes import PRESENT, KernelFile, Place, ResourceGroup
from koordlet.host.cgroups.processes import kill_below, on_cpus_of, pids_below, signal_below
from koordlet.host.cgroups.reclaim import reclaim, reclaim_by_limit, usage_bytes

Texts = frozenset[str] | None


class KernelWriter:
    """Act for real."""

    is_dry = False

    def identity(self, place: Place) -> str | None:
        """As `place.identity`."""
        return place.identity()

    def read(self, place: Place) -> Texts:
        """As `place.read`."""
        return place.read()

    def write(self, place: Place, value: str, holding: Collection[str], identity: str) -> None:
        """As `place.write`."""
        place.write(value, holding, identity)

    def expect(self, place: Place, value: str) -> None:
        """The kernel is about to set a place by itself."""

    def processes(self, directory: Path) -> int:
        """How many processes are below a cgroup."""
        return len(pids_below(directory))

    def terminate(self, directory: Path) -> int:
        """SIGTERM to all of them; how many there were."""
        return signal_below(directory, signal.SIGTERM)

    def kill(self, directory: Path) -> int:
        """SIGKILL to all of them; how many there were."""
        return kill_below(directory)

    def reclaim(self, directory: Path, amount_bytes: int) -> int:
        """Take memory from a cgroup; how much of it was given. Raises Unsupported or HostError."""
        with on_cpus_of(directory):
            return reclaim(directory, amount_bytes)

    def reclaim_by_limit(self, directory: Path, limits: Sequence[int], form: Format, standing: str) -> int:
        """Take memory by limits that stand for a moment; how much it was. Raises HostError."""
        with on_cpus_of(directory):
            return reclaim_by_limit(directory, limits, spelled(form, standing))


class DryRunWriter(KernelWriter):
    """Change nothing."""

    is_dry = True

    def __init__(self) -> None:
        self._pretended: dict[str, tuple[str, Texts]] = {}
        """Place to the text it would hold, and what really stood there then."""

    def identity(self, place: Place) -> str | None:
        found = place.identity()
        return "" if found is None and self._is_in_pretended_group(place) else found

    def read(self, place: Place) -> Texts:
        real = self._really(place)
        text, stood = self._pretended.get(place.key, ("", None))
        if place.key not in self._pretended:
            return real
        if real != stood:
            del self._pretended[place.key]
            return real
        return frozenset((text,))

    def _really(self, place: Place) -> Texts:
        """What stands there; in a group that is not there, what a fresh group has: the root's."""
        if isinstance(place, KernelFile) and self._is_in_pretended_group(place):
            path = Path(place.path)
            return KernelFile(str(path.parent.parent / path.name), place.form, place.layout, place.item, False).read()
        return place.read()

    def _is_in_pretended_group(self, place: Place) -> bool:
        group = ResourceGroup(str(Path(place.path).parent))
        return self._pretended.get(group.key, ("", None))[0] == PRESENT and not Path(group.path).is_dir()

    def write(self, place: Place, value: str, holding: Collection[str], identity: str) -> None:  # noqa: ARG002
        self._pretended[place.key] = (value, self._really(place))

    def expect(self, place: Place, value: str) -> None:
        self._pretended[place.key] = (value, self._really(place))

    def terminate(self, directory: Path) -> int:
        return self.processes(directory)

    def kill(self, directory: Path) -> int:
        return self.processes(directory)

    def reclaim(self, directory: Path, amount_bytes: int) -> int:
        reclaim(directory, 0)
        return amount_bytes

    def reclaim_by_limit(self, directory: Path, limits: Sequence[int], form: Format, standing: str) -> int:  # noqa: ARG002
        return max(usage_bytes(directory) - limits[-1], 0)
