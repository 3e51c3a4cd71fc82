"""CPU lists as the kernel and the protocol write them: `0-3,8,10-11`."""

from collections.abc import Iterable

MAX_CPU = 65_535
"""Highest number in a list, well above what kernels allow: a list from a stranger must not fill the memory."""


def parse_cpuset(text: str, most: int = MAX_CPU + 1) -> frozenset[int]:
    """The CPU numbers of a list such as `0-3,8`; empty text is the empty set.

    Raises ValueError naming the list when a part is neither a number nor an ascending range, a number is `most` or
    higher, or the list names more than `most` CPUs.
    """
    cpus: set[int] = set()
    listed = 0
    for part in filter(None, text.strip().split(",")):
        first, dash, last = part.strip().partition("-")
        if len(first) <= 9 and len(last) <= 9 and (not first.isdecimal() or (dash and not last.isdecimal())):
            raise ValueError(f"not a CPU list: {text[:64]!r} (part {part[:32]!r}); write it like 0-3,8")
        if len(last) > 9 or len(first) > 9 or int(last or first) >= most:
            raise ValueError(f"not a CPU list: {text[:64]!r} (part {part[:32]!r}); no CPU is above {most - 1}")
        if dash and int(last) < int(first):
            raise ValueError(f"not a CPU list: {text[:64]!r} (part {part[:32]!r}); write it like 0-3,8")
        listed += int(last or first) - int(first) + 1
        if listed > most:
            raise ValueError(f"not a CPU list: {text[:64]!r}; it names more CPUs than there can be")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def format_cpuset(cpus: Iterable[int]) -> str:
    """The shortest list of the given CPU numbers, ascending; the empty set is the empty text."""
    runs: list[tuple[int, int]] = []
    for cpu in sorted(set(cpus)):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1] = (runs[-1][0], cpu)
        else:
            runs.append((cpu, cpu))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
