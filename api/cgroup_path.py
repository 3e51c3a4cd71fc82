"""Paths of cgroups: their text form; parents, subtrees, the outermost of several. Pure strings, no I/O.

A cgroup's name is any bytes but `/`, newline and NUL, chosen by any user who may make the directory. Inside Koord a
path is text: printable characters as they are, a backslash doubled, each other byte as `\\xNN`. `path_text` makes it
where a name is read from the kernel, `raw_path` undoes it where a file is opened; nothing is lost either way.

Paths start with `/` under the mount of the cpu hierarchy. The root cgroup is the parent of the top-level ones but
counts as no cgroup's ancestor: its own tasks are a neighbour like any other, and a setting there is the node's.
"""

import re
from collections.abc import Iterable

ROOT = "/"
_ESCAPE = re.compile(r"\\(\\|x([0-9a-f]{2})|)")


def path_text(raw: str) -> str:
    """Return the text form of a path as Python reads it from the file system (undecodable bytes as surrogates)."""
    if raw.isprintable() and "\\" not in raw:
        return raw
    return "".join(map(_text_of, raw))


def raw_path(text: str) -> str:
    """Return the path whose text form this is, for open(2) and its kin.

    Raises ValueError for text that no path has: a lone backslash, or an escaped character that needs no escape, such as
    a hidden `..` or NUL.
    """
    if "\\" not in text:
        return text
    return b"".join(_bytes_of(text)).decode(errors="surrogateescape")


def _text_of(character: str) -> str:
    if character == "\\":
        return "\\\\"
    return character if character.isprintable() else "".join(f"\\x{byte:02x}" for byte in _bytes(character))


def _bytes(raw: str) -> bytes:
    return raw.encode(errors="surrogateescape")


def _bytes_of(text: str) -> Iterable[bytes]:
    end = 0
    for found in _ESCAPE.finditer(text):
        yield _bytes(text[end : found.start()])
        byte = int(found.group(2) or "5c", 16)
        if not found.group(1) or byte == 0 or (found.group(2) and 0x20 <= byte < 0x7F):
            raise ValueError(f"{text!r} is the text of no cgroup path")
        yield bytes((byte,))
        end = found.end()
    yield _bytes(text[end:])


def parent(path: str) -> str:
    """Return the path above, `/` for a top-level cgroup, empty for the root."""
    return "" if path == ROOT else path.rpartition("/")[0] or ROOT


def ancestors(path: str) -> list[str]:
    """Return the paths above a cgroup, nearest first, without the root and itself."""
    found = []
    above = path.rpartition("/")[0]
    while above:
        found.append(above)
        above = above.rpartition("/")[0]
    return found


def lineage(path: str) -> list[str]:
    """Return a cgroup and its ancestors, nearest first; slashes at the ends of the path do not count."""
    path = "/" + path.strip("/")
    return [path, *ancestors(path)]


def is_below(path: str, other: str) -> bool:
    """Return whether a cgroup is in the subtree of another one, which is not the root."""
    return other != ROOT and path.startswith(f"{other}/")


def is_within(path: str, other: str) -> bool:
    """Return whether a cgroup is another one, or below it."""
    return path == other or is_below(path, other)


def outermost(paths: Iterable[str]) -> frozenset[str]:
    """Return the paths that are not below another one of them."""
    members = frozenset(paths)
    one_of_each = {parent(path): path for path in members}  # those in one directory have the same ancestors
    inner = {above for above, path in one_of_each.items() if not members.isdisjoint(ancestors(path))}
    return frozenset(path for path in members if parent(path) not in inner)


def competing_ancestor(path: str, other: str) -> str:
    """Return the first cgroup's ancestor, or itself, just below the ancestor that both have in common.

    Weights and cpu.idle act between the children of one cgroup only. Empty where one lies within the other; the root
    competes with every other cgroup, by its own tasks.
    """
    mine, theirs = path.strip("/").split("/"), other.strip("/").split("/")
    shared = 0
    while shared < min(len(mine), len(theirs)) and mine[shared] == theirs[shared]:
        shared += 1
    if shared in (len(mine), len(theirs)):
        return ""
    return "/" + "/".join(mine[: shared + 1])
