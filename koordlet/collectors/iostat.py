"""Block IO bytes and operations of each cgroup: io.stat on v2, blkio.throttle.* on v1, summed over devices."""

from api.plugin import Unsupported
from koordlet.collectors import FileCollector, Host, PerCgroupFile
from koordlet.host.files import KeptFiles

_BYTES = ("iostat.read_bytes", "iostat.write_bytes")
_OPS = ("iostat.reads", "iostat.writes")


class IoStat(FileCollector):
    """IO counters, read in turn."""

    source = "iostat"

    @classmethod
    def open(cls, host: Host) -> "IoStat":
        """Raises Unsupported where no io controller is mounted."""
        mount = host.hierarchies.io
        if mount is None:
            raise Unsupported("no io (blkio) controller is mounted", "mount the blkio controller (v1) or cgroup2")
        if mount == host.hierarchies.unified:
            return cls([PerCgroupFile(KeptFiles(mount, "io.stat"), (*_BYTES, *_OPS), parse_io_stat)])
        prefix = "blkio.throttle.io_service"
        return cls(
            [
                PerCgroupFile(KeptFiles(mount, f"{prefix}_bytes_recursive"), _BYTES, parse_blkio),
                PerCgroupFile(KeptFiles(mount, "blkio.throttle.io_serviced_recursive"), _OPS, parse_blkio),
            ]
        )


def parse_io_stat(content: bytes) -> tuple[float, float, float, float]:
    """v2: `8:0 rbytes=1 wbytes=2 rios=3 wios=4 ...` a line for each device; an empty file is all zero."""
    totals = {b"rbytes": 0, b"wbytes": 0, b"rios": 0, b"wios": 0}
    for line in content.splitlines():
        for word in line.split()[1:]:
            key, _, value = word.partition(b"=")
            if key in totals:
                totals[key] += int(value)
    return totals[b"rbytes"], totals[b"wbytes"], totals[b"rios"], totals[b"wios"]


def parse_blkio(content: bytes) -> tuple[float, float]:
    """v1: `8:0 Read 1` lines; reads and writes summed over devices."""
    read = write = 0
    for line in content.splitlines():
        words = line.split()
        if len(words) == 3:
            if words[1] == b"Read":
                read += int(words[2])
            elif words[1] == b"Write":
                write += int(words[2])
    return read, write
