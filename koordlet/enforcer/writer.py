"""The writer: the one place where kernel files are written and processes signalled, and its dry run.

A dry run uses the other writer and differs in nothing else. A text that it was told to write reads back as if the file
held it, until the file's own text changes.
"""

import signal
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from koordlet.host.attribute_formats import Format, written_text
from koordlet.host.attributes import PRESENT, Attribute, KernelFile, ResourceGroup
from koordlet.host.cgroups.processes import kill_below, on_cpus_of, pids_below, signal_below
from koordlet.host.cgroups.reclaim import reclaim, reclaim_by_limit

Texts = frozenset[str] | None


class Writer(Protocol):
    """Access to a host. Every method raises HostError as the function of `koordlet.host` does that it stands for."""

    is_dry: bool

    def identity(self, attribute: Attribute) -> str | None:
        """As `attribute.identity`."""

    def read(self, attribute: Attribute) -> Texts:
        """As `attribute.read`."""

    def write(self, attribute: Attribute, value: str, expected: Collection[str], identity: str) -> None:
        """As `attribute.write`."""

    def expect(self, attribute: Attribute, value: str) -> None:
        """Note that the kernel is about to set an attribute by itself."""

    def signal(self, directory: Path, number: int) -> int:
        """Signal every process below a cgroup; return their number."""

    def reclaim(self, directory: Path, amount_bytes: int) -> int:
        """Reclaim memory of a cgroup; return the bytes that were freed. Raises Unsupported, too."""

    def reclaim_by_limit(self, directory: Path, amount_bytes: int, present_limit: str) -> int:
        """Reclaim memory of a v1 cgroup by a limit that usage cannot fit; return the bytes that were freed."""


class KernelWriter:
    """Writes to the kernel."""

    is_dry = False

    def identity(self, attribute: Attribute) -> str | None:
        return attribute.identity()

    def read(self, attribute: Attribute) -> Texts:
        return attribute.read()

    def write(self, attribute: Attribute, value: str, expected: Collection[str], identity: str) -> None:
        attribute.write(value, expected, identity)

    def expect(self, attribute: Attribute, value: str) -> None:
        pass

    def signal(self, directory: Path, number: int) -> int:
        return kill_below(directory) if number == signal.SIGKILL else signal_below(directory, number)

    def reclaim(self, directory: Path, amount_bytes: int) -> int:
        with on_cpus_of(directory):
            return reclaim(directory, amount_bytes)

    def reclaim_by_limit(self, directory: Path, amount_bytes: int, present_limit: str) -> int:
        with on_cpus_of(directory):
            return reclaim_by_limit(directory, amount_bytes, written_text(Format.LIMIT_BYTES, present_limit))


class DryRunWriter:
    """Reads from the kernel and changes nothing."""

    is_dry = True

    def __init__(self) -> None:
        self._pretended: dict[str, tuple[str, Texts]] = {}
        """By key of the attribute: the text it would hold, and the texts that it really held then."""

    def identity(self, attribute: Attribute) -> str | None:
        found = attribute.identity()
        return "" if found is None and self._is_in_pretended_group(attribute) else found

    def read(self, attribute: Attribute) -> Texts:
        real = self._real_texts(attribute)
        pretended, real_then = self._pretended.get(attribute.key, ("", None))
        if attribute.key not in self._pretended:
            return real
        if real != real_then:
            del self._pretended[attribute.key]
            return real
        return frozenset((pretended,))

    def _real_texts(self, attribute: Attribute) -> Texts:
        """Texts on the host; in a resource group that is only pretended those of the root group, as a fresh one has."""
        if isinstance(attribute, KernelFile) and self._is_in_pretended_group(attribute):
            group, _, name = attribute.path.rpartition("/")
            in_root = f"{group.rpartition('/')[0]}/{name}"
            return KernelFile(in_root, attribute.format, attribute.layout, attribute.item, is_cgroup=False).read()
        return attribute.read()

    def _is_in_pretended_group(self, attribute: Attribute) -> bool:
        group = ResourceGroup(attribute.path.rpartition("/")[0])
        return self._pretended.get(group.key, ("", None))[0] == PRESENT and not group.place.is_dir()

    def write(self, attribute: Attribute, value: str, expected: Collection[str], identity: str) -> None:  # noqa: ARG002
        self._pretended[attribute.key] = (value, self._real_texts(attribute))

    def expect(self, attribute: Attribute, value: str) -> None:
        self._pretended[attribute.key] = (value, self._real_texts(attribute))

    def signal(self, directory: Path, number: int) -> int:  # noqa: ARG002
        return len(pids_below(directory))

    def reclaim(self, directory: Path, amount_bytes: int) -> int:
        reclaim(directory, 0)  # raises Unsupported as the real one does
        return amount_bytes

    def reclaim_by_limit(self, directory: Path, amount_bytes: int, present_limit: str) -> int:  # noqa: ARG002
        return amount_bytes
