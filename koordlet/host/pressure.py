"""PSI files (Documentation/accounting/psi.rst): the resources they exist for, and their totals."""

RESOURCES = ("cpu", "memory", "io")


def parse_pressure(content: bytes) -> tuple[float, float]:
    """Totals in microseconds of `some` and `full` (0 where the kernel has no `full` line)."""
    totals = {line.split(b" ", 1)[0]: int(line.rpartition(b"total=")[2]) for line in content.splitlines()}
    return totals[b"some"], totals.get(b"full", 0)
