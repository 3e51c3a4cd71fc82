"""Child process that writes one file: `python -m koordlet.profiles.segment PATH`, a packed `ProfileSegment` on stdin.

The file gets its name only when all of it is on disk.
"""

import os
import sys
from pathlib import Path

import msgspec

from koordlet.profiles.rows import ProfileSegment

PARTIAL = ".new"
"""Suffix of an incomplete file."""


def write(segment: ProfileSegment, path: Path) -> None:
    """Write a segment as Parquet. Raises OSError, ImportError without pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, pa.Array] = {"time": pa.array(segment.column("time"))}
    columns |= {name: pa.array(values, pa.string()) for name, values in segment.texts.items()}
    columns |= {name: pa.array(values, pa.bool_()) for name, values in segment.flags.items()}
    columns |= {name: pa.array(segment.column(name)) for name in segment.floats if name != "time"}
    partial = path.with_name(path.name + PARTIAL)
    try:
        pq.write_table(pa.table(columns), partial, compression="zstd")
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def main() -> int:
    """Exit 0 when the file is there, 1 with the reason on stderr."""
    try:
        os.nice(10)
        os.umask(0o077)  # names and usage of all containers are for root alone
        write(msgspec.msgpack.decode(sys.stdin.buffer.read(), type=ProfileSegment), Path(sys.argv[1]))
    except (OSError, ImportError, msgspec.DecodeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
