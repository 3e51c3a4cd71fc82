"""Control values by schema, domain and CLOSID: parsing, checking, overlap, and the text of schemata and size.

Rules, order of checks and messages follow the kernel's fs/resctrl/ctrlmondata.c and rdtgroup.c.
"""

import errno
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from tests.resctrl_fs.command import CommandError
from tests.resctrl_fs.hardware import BandwidthControl, CacheControl, Machine

MBA_MAX_MBPS = (1 << 32) - 1

Mode = Literal["shareable", "exclusive"]
ModeOf = Callable[[int], Mode | None]


@dataclass(slots=True)
class Schema:
    """One line of the schemata file. `values[domain][closid]` is what the hardware holds."""

    name: str
    control: CacheControl | BandwidthControl
    num_closids: int
    is_mbps: bool = False
    peer: "Schema | None" = None
    values: dict[int, list[int]] = field(default_factory=dict)

    @property
    def default_value(self) -> int:
        if isinstance(self.control, CacheControl):
            return self.control.full_mask
        return MBA_MAX_MBPS if self.is_mbps else self.control.max_bandwidth

    def reset(self) -> None:
        for domain in self.control.domains:
            self.values[domain] = [self.default_value] * self.num_closids

    def usage_of(self, domain: int, closid: int) -> int:
        """Return the bits that `closid` occupies in the cache, code and data together."""
        own = self.values[domain][closid]
        return own | self.peer.values[domain][closid] if self.peer else own


class ControlTable:
    """All schemata of a mount. `mode_of` returns a CLOSID's mode, or None for a free one."""

    def __init__(self, machine: Machine, options: frozenset[str], mode_of: ModeOf) -> None:
        self._mode_of = mode_of
        self._is_padded = machine.has_padded_values
        self.schemas: list[Schema] = []
        for cache in machine.caches:
            self._add_cache(cache, is_cdp=("cdp" if cache.level == "L3" else "cdpl2") in options)
        if machine.bandwidth:
            bandwidth = machine.bandwidth
            self._add(Schema("MB", bandwidth, bandwidth.num_closids, is_mbps="mba_MBps" in options))
        self._width = max((self._name_width(schema) for schema in self.schemas), default=0)

    def _add_cache(self, cache: CacheControl, *, is_cdp: bool) -> None:
        if not is_cdp:
            self._add(Schema(cache.level, cache, cache.num_closids))
            return
        code = Schema(f"{cache.level}CODE", cache, cache.num_closids // 2)
        data = Schema(f"{cache.level}DATA", cache, cache.num_closids // 2)
        code.peer, data.peer = data, code
        self._add(code)
        self._add(data)

    def _add(self, schema: Schema) -> None:
        schema.reset()
        # The kernel adds at the head of its list: the last resource is the first line.
        self.schemas.insert(0, schema)

    @staticmethod
    def _name_width(schema: Schema) -> int:
        control = schema.control
        is_split_later = isinstance(control, CacheControl) and control.is_cdp_capable and not schema.peer
        return len(schema.name) + (4 if is_split_later else 0)

    @property
    def num_closids(self) -> int:
        """The smallest count of all resources limits all of them; 1 where nothing is controlled."""
        return min((schema.num_closids for schema in self.schemas), default=1)

    def _closids(self) -> Iterable[int]:
        return (closid for closid in range(self.num_closids) if self._mode_of(closid) is not None)

    def schemata_text(self, closid: int) -> str:
        return "".join(
            self._line(schema, [self._format(schema, values[closid]) for values in schema.values.values()])
            for schema in self.schemas
        )

    def size_text(self, closid: int) -> str:
        return "".join(
            self._line(schema, [str(self._size(schema, values[closid])) for values in schema.values.values()])
            for schema in self.schemas
        )

    def _line(self, schema: Schema, cells: list[str]) -> str:
        pairs = ";".join(f"{domain}={cell}" for domain, cell in zip(schema.values, cells, strict=True))
        return f"{schema.name:>{self._width}}:{pairs}\n"

    def _format(self, schema: Schema, value: int) -> str:
        if isinstance(schema.control, CacheControl):
            return f"{value:0{(schema.control.cbm_bits + 3) // 4 if self._is_padded else 1}x}"
        return f"{value:{len(str(schema.default_value)) if self._is_padded else 1}d}"

    @staticmethod
    def _size(schema: Schema, value: int) -> int:
        if isinstance(schema.control, CacheControl):
            return schema.control.size_bytes // schema.control.cbm_bits * value.bit_count()
        return value

    def write(self, closid: int, mode: Mode, text: str) -> None:
        """Apply the lines of `text`: all of them, or none when any is refused with CommandError.

        In the MBps mode a bandwidth value applies as its line is read, and stays when a later line fails.
        """
        staged: dict[tuple[str, int], int] = {}
        for line in text.split("\n"):
            name, colon, rest = line.partition(":")
            name = name.strip()
            if not colon:
                raise CommandError(errno.EINVAL, "Missing ':'")
            if not rest:
                raise CommandError(errno.EINVAL, f"Missing '{name}' value")
            schema = self._schema(name, closid)
            self._stage_line(schema, closid, mode, rest, staged)
        for (name, domain), value in staged.items():
            self._schema(name, closid).values[domain][closid] = value

    def _schema(self, name: str, closid: int) -> Schema:
        for schema in self.schemas:
            if schema.name == name and closid < schema.num_closids:
                return schema
        raise CommandError(errno.EINVAL, f"Unknown or unsupported resource name '{name}'")

    def _stage_line(
        self, schema: Schema, closid: int, mode: Mode, rest: str, staged: dict[tuple[str, int], int]
    ) -> None:
        for part in rest.split(";"):
            if not part:
                return
            domain_text, equals, value_text = part.partition("=")
            if not equals or not re.fullmatch(r"\+?[0-9]+", domain_text):
                raise CommandError(errno.EINVAL, "Missing '=' or non-numeric domain")
            domain = int(domain_text)
            if domain not in schema.values:
                raise CommandError(errno.EINVAL)
            if (schema.name, domain) in staged:
                raise CommandError(errno.EINVAL, f"Duplicate domain {domain}")
            value = self._parse_value(schema, domain, closid, mode, value_text.strip())
            if schema.is_mbps:
                schema.values[domain][closid] = value
            else:
                staged[(schema.name, domain)] = value

    def _parse_value(self, schema: Schema, domain: int, closid: int, mode: Mode, text: str) -> int:
        if isinstance(schema.control, BandwidthControl):
            return parse_bandwidth(schema.control, text, is_mbps=schema.is_mbps)
        mask = parse_mask(schema.control, text)
        if self.overlaps(schema, domain, mask, closid, is_exclusive_only=True):
            raise CommandError(errno.EINVAL, "Overlaps with exclusive group")
        if mode == "exclusive" and self.overlaps(schema, domain, mask, closid):
            raise CommandError(errno.EINVAL, "Overlaps with other group")
        return mask

    def overlaps(self, schema: Schema, domain: int, mask: int, closid: int, *, is_exclusive_only: bool = False) -> bool:
        """Return whether `mask` meets bits of other groups (all, or the exclusive ones) or of the hardware.

        Bits that the hardware shares count only among all.
        """
        assert isinstance(schema.control, CacheControl)
        if not is_exclusive_only and mask & schema.control.shareable_bits:
            return True
        return any(
            mask & schema.usage_of(domain, other)
            for other in self._closids()
            if other != closid and (not is_exclusive_only or self._mode_of(other) == "exclusive")
        )

    def check_exclusive(self, closid: int) -> None:
        """Raise CommandError(EINVAL) unless the group shares no cache with anyone."""
        caches = [schema for schema in self.schemas if isinstance(schema.control, CacheControl)]
        for schema in caches:
            for domain, values in schema.values.items():
                if self.overlaps(schema, domain, values[closid], closid):
                    raise CommandError(errno.EINVAL, "Schemata overlaps")
        if not caches:
            raise CommandError(errno.EINVAL, "Cannot be exclusive without CAT/CDP")

    def init_group(self, closid: int) -> None:
        """Give a fresh group all bits that are shareable or unused, and full bandwidth.

        Raises CommandError(ENOSPC) where exclusive groups leave no room.
        """
        for schema in self.schemas:
            for domain, values in schema.values.items():
                control = schema.control
                if isinstance(control, CacheControl):
                    values[closid] = self._initial_mask(schema, control, domain, closid)
                else:
                    values[closid] = schema.default_value

    def _initial_mask(self, schema: Schema, control: CacheControl, domain: int, closid: int) -> int:
        used = open_bits = control.shareable_bits
        for other in self._closids():
            if other != closid:
                used |= schema.usage_of(domain, other)
                if self._mode_of(other) == "shareable":
                    open_bits |= schema.usage_of(domain, other)
        mask = first_run(open_bits | (control.full_mask & ~used))
        if mask.bit_count() < control.min_cbm_bits:
            raise CommandError(errno.ENOSPC, f"No space on {schema.name}:{domain}")
        return mask

    def bit_usage_text(self, schema: Schema) -> str:
        """Annotate each bit of each domain: X, H, S, E or 0 (see the kernel's documentation of bit_usage)."""
        assert isinstance(schema.control, CacheControl)
        cells = []
        for domain, values in schema.values.items():
            by_mode = {"shareable": 0, "exclusive": 0}
            for closid in self._closids():
                by_mode[self._mode_of(closid) or "shareable"] |= values[closid]
            cells.append(f"{domain}={_annotate(schema.control, by_mode['shareable'], by_mode['exclusive'])}")
        return ";".join(cells) + "\n"


def _annotate(control: CacheControl, shareable: int, exclusive: int) -> str:
    letters = []
    for bit in reversed(range(control.cbm_bits)):
        by_hardware, by_software = control.shareable_bits >> bit & 1, shareable >> bit & 1
        if by_hardware:
            letters.append("X" if by_software else "H")
        elif by_software:
            letters.append("S")
        else:
            letters.append("E" if exclusive >> bit & 1 else "0")
    return "".join(letters)


def first_run(mask: int) -> int:
    """Keep the lowest run of consecutive bits, as the kernel does for a fresh group on any machine."""
    if not mask:
        return 0
    low = mask & -mask
    # Adding the lowest bit carries through its run: what the carry cleared is the run.
    return mask & ~(mask + low)


def parse_bandwidth(control: BandwidthControl, text: str, *, is_mbps: bool) -> int:
    """Parse a percentage (or MBps value), rounded up to the hardware's next step."""
    if not re.fullmatch(r"\+?[0-9]+", text) or int(text) > MBA_MAX_MBPS:
        raise CommandError(errno.EINVAL, f"Invalid MB value {text}")
    value = int(text)
    if is_mbps:
        return value
    low, high = control.min_bandwidth, control.max_bandwidth
    if not low <= value <= high:
        raise CommandError(errno.EINVAL, f"MB value {value} out of range [{low},{high}]")
    return -(-value // control.granularity) * control.granularity


def parse_mask(control: CacheControl, text: str) -> int:
    """Parse and check a hexadecimal capacity mask."""
    if not re.fullmatch(r"\+?(0[xX])?[0-9a-fA-F]+", text):
        raise CommandError(errno.EINVAL, f"Non-hex character in the mask {text}")
    mask = int(text, 16)
    if (control.min_cbm_bits > 0 and mask == 0) or mask > control.full_mask:
        raise CommandError(errno.EINVAL, "Mask out of range")
    run = first_run(mask)
    if not control.has_sparse_masks and run != mask:
        raise CommandError(errno.EINVAL, f"The mask {mask:x} has non-consecutive 1-bits")
    if run.bit_count() < control.min_cbm_bits:
        raise CommandError(errno.EINVAL, f"Need at least {control.min_cbm_bits} bits in the mask")
    return mask
