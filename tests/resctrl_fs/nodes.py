"""Nodes of the tree: a file with a reader and perhaps a writer, or a directory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.resctrl_fs.groups import Group

Role = Literal["control", "monitor", "mon_groups", "fixed"]
Writer = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class File:
    """`write` takes the text and the caller's process id; None makes the file read-only.

    `needs_newline` files refuse text without a trailing newline before they look at it.
    """

    read: Callable[[], str]
    write: Writer | None = None
    needs_newline: bool = False
    is_command: bool = True


@dataclass(frozen=True, slots=True)
class Directory:
    """`group` is the one that the kernel would find from here: the owner of mon_groups and mon_data, too."""

    entries: Callable[[], dict[str, "Node"]]
    role: Role = "fixed"
    group: Group | None = None


Node = File | Directory
