"""The cpu knobs whose files differ between cgroup v1 and v2 in more than their names."""

from koordlet.host.attribute_formats import MAX, Format, canonical, shares_of_weight
from koordlet.host.cgroups.controllers import Assignment
from koordlet.host.knobs.spec import KnobFile, KnobHost, KnobSpec

WEIGHT, SHARES = KnobFile("cpu.weight", Format.INTEGER), KnobFile("cpu.shares", Format.INTEGER)
_IDLE_TEXTS = {SHARES: "3", WEIGHT: "1"}
"""Text that the kernel shows while a cgroup is idle (WEIGHT_IDLEPRIO)."""
_FRESH_TEXTS = {SHARES: ("1024",), WEIGHT: ("0", "100")}
"""Texts that it shows afterwards; and 0, which some kernels show for an idle one."""


def assign_weight(host: KnobHost, spec: KnobSpec, target: str, value: str) -> tuple[Assignment, ...]:
    """cpu.weight, on v1 as cpu.shares of the same meaning."""
    (file,) = spec.files(host)
    weight = int(value)
    number = shares_of_weight(weight) if file == SHARES else weight
    return (Assignment(spec.kernel_file(host, target, file), str(number)),)


def assign_quota(host: KnobHost, spec: KnobSpec, target: str, value: str) -> tuple[Assignment, ...]:
    """cpu.max, on v1 quota and period; without a period the present one is kept."""
    quota, _, period = value.strip().partition(" ")
    first, *rest = spec.files(host)
    attribute = spec.kernel_file(host, target, first)
    if not rest:
        kept = period or (next(iter(attribute.read() or ()), f"{MAX} 100000").partition(" ")[2])
        return (Assignment(attribute, canonical(first.format, f"{quota} {kept}")),)
    assigned = [Assignment(attribute, canonical(first.format, quota))]
    if period:
        (second,) = rest
        assigned.append(Assignment(spec.kernel_file(host, target, second), canonical(second.format, period)))
    return tuple(assigned)


def assign_idle(host: KnobHost, spec: KnobSpec, target: str, value: str) -> tuple[Assignment, ...]:
    """cpu.idle, with the weight, which the kernel replaces while a cgroup is idle and forgets afterwards."""
    (file,) = spec.files(host)
    idle = spec.kernel_file(host, target, file)
    own = Assignment(idle, canonical(file.format, value))
    if own.value != "1" or idle.read() != frozenset(("0",)):
        return (own,)
    weight = SHARES if host.directories.is_v1(spec.controller) else WEIGHT
    attribute = spec.kernel_file(host, target, weight)
    return (Assignment(attribute, _IDLE_TEXTS[weight], by_kernel=True, also=_FRESH_TEXTS[weight]), own)
