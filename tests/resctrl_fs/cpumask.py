"""CPU masks as the kernel prints and parses them: a mask is an int with one bit per CPU."""

import errno

from tests.resctrl_fs.command import CommandError

_BAD = "Bad CPU list/mask"


def format_mask(mask: int, num_cpus: int) -> str:
    """Hexadecimal in comma-separated groups of 32 bits, padded to `num_cpus` bits (printk's %*pb)."""
    groups: list[str] = []
    for low in range(0, num_cpus, 32):
        bits = min(32, num_cpus - low)
        groups.append(f"{(mask >> low) & ((1 << bits) - 1):0{(bits + 3) // 4}x}")
    return ",".join(reversed(groups))


def format_list(mask: int) -> str:
    """Ranges such as "0-3,6" (printk's %*pbl); the empty mask is the empty string."""
    cpus = [cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1]
    ranges: list[list[int]] = []
    for cpu in cpus:
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def parse_mask(text: str) -> int:
    """Parse %*pb text; raises CommandError(EINVAL)."""
    try:
        mask = 0
        for group in text.strip().split(","):
            value = int(group, 16) if group else 0
            if value >> 32:
                raise ValueError(group)
            mask = mask << 32 | value
    except ValueError:
        raise CommandError(errno.EINVAL, _BAD) from None
    return mask


def parse_list(text: str) -> int:
    """Parse %*pbl text; the empty text is the empty mask; raises CommandError(EINVAL)."""
    mask = 0
    try:
        for part in filter(None, text.strip().split(",")):
            low, _, high = part.partition("-")
            first, last = int(low), int(high or low)
            if first > last:
                raise ValueError(part)
            mask |= ((1 << (last - first + 1)) - 1) << first
    except ValueError:
        raise CommandError(errno.EINVAL, _BAD) from None
    return mask
