"""Settings of [profiles]: where, how often and how much."""

from typing import Annotated

import msgspec


class ProfileSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[profiles]: rows for `koord-detector train` and capacity analysis."""

    enabled: bool = False
    directory: str = "/var/lib/koord/profiles"
    every_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 5.0
    """Time between two rows of a container."""
    segment_seconds: Annotated[float, msgspec.Meta(ge=0.5, le=86_400)] = 300.0
    """Time after which the gathered rows become a file."""
    segment_rows: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 20_000
    """Rows that become a file earlier; each holds about 200 bytes of memory until then."""
    max_bytes: Annotated[int, msgspec.Meta(ge=4096, le=1 << 44)] = 1 << 30
    """Limit on all files together; the oldest are deleted."""
