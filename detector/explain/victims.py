"""Selection of cgroups by path, name, workload or pattern. Pure."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from api.frame import CgroupInfo

_MAX_LISTED = 20


def matching(text: str, infos: Iterable[CgroupInfo]) -> list[CgroupInfo]:
    """Return the matching cgroups in the order given; an exact match leaves out matches of a pattern.

    Exact are the path, then the name, then the workload or the last part of either; patterns are the shell's and are
    tried on all of them.
    """
    known = list(infos) if text else []
    for matches in (_by_path, _by_name, _by_workload, _by_last_part, _by_pattern):
        found = [info for info in known if matches(text, info)]
        if found:
            return found
    return []


def listing(infos: Sequence[CgroupInfo]) -> str:
    """Format names and paths, at most so many."""
    shown = [f"  {info.name:<24} {info.path}{f'  ({info.workload})' if info.workload else ''}" for info in infos]
    more = len(shown) - _MAX_LISTED
    return "\n".join([*shown[:_MAX_LISTED], *([f"  and {more} more"] if more > 0 else [])])


def _by_path(text: str, info: CgroupInfo) -> bool:
    return text == info.path


def _by_name(text: str, info: CgroupInfo) -> bool:
    return text == info.name


def _by_workload(text: str, info: CgroupInfo) -> bool:
    return text == info.workload


def _by_last_part(text: str, info: CgroupInfo) -> bool:
    return text in (info.path.rpartition("/")[2], info.workload.rpartition("/")[2])


def _by_pattern(text: str, info: CgroupInfo) -> bool:
    return any(fnmatchcase(each, text) for each in (info.path, info.name, info.workload) if each)
