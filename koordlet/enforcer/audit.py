"""The audit: one JSON line for each decision that changed, in files of bounded size.

A full disk never stops the agent: what could not be written is counted in `lost`, and no half line stays behind.
"""

import os
from enum import StrEnum
from pathlib import Path

import msgspec

SCHEMA = "koord.audit/v1"


class Outcome(StrEnum):
    """Outcome of an intent, or of a setting in effect."""

    SET = "set"
    UNCHANGED = "unchanged"
    """The value was there already."""
    RESTORED = "restored"
    RECLAIMED = "reclaimed"
    TERMINATED = "terminated"
    KILLED = "killed"
    EVICTING = "evicting"
    """The API server is asked for the eviction; its answer comes with a later step."""
    EVICTED = "evicted"
    """The API server accepted the eviction."""
    DISRUPTION_BUDGET = "disruption_budget"
    """A disruption budget of the pod forbids its eviction at this moment."""
    CONFLICT = "conflict"
    """Another strategy's intent won."""
    OVERLAID = "overlaid"
    """Protocol state below an action; it is put back when the action ends."""
    REFUSED = "refused"
    """The settings or the value forbid it."""
    PROTECTED = "protected"
    OVER_BUDGET = "over_budget"
    COOLDOWN = "cooldown"
    """Too soon after another eviction."""
    SET_AGAIN = "set_again"
    """In effect anew, after systemd had set the original back."""
    FOREIGN_WRITE = "foreign_write"
    """Another program wrote there; its value stays."""
    BACKING_OFF = "backing_off"
    """Not written for some seconds after a foreign write or a failure."""
    GONE = "gone"
    """The cgroup is no more, or another of the same path."""
    UNSUPPORTED = "unsupported"
    FAILED = "failed"
    """The kernel refused."""
    JOURNAL_UNAVAILABLE = "journal_unavailable"
    """The journal could not be written, so nothing was changed."""


ACTIONS = frozenset(
    {
        Outcome.SET,
        Outcome.RESTORED,
        Outcome.RECLAIMED,
        Outcome.TERMINATED,
        Outcome.KILLED,
        Outcome.EVICTED,
        Outcome.SET_AGAIN,
        Outcome.FOREIGN_WRITE,
        Outcome.GONE,
    }
)
"""Outcomes that are audited each time; any other is audited once, until it changes."""


class Line(msgspec.Struct, frozen=True, kw_only=True, rename={"before": "from", "after": "to"}):
    """One line of the file."""

    schema: str = SCHEMA
    time: str
    """RFC 3339, UTC."""
    strategy: str
    verdict: str
    """`victim|rule` that the intent answers."""
    target: str
    name: str = ""
    """Display name of the target: `namespace/pod/container`, unit; empty where it is not known."""
    qos: str = ""
    """QoS class that its rights were judged by: its own or its nearest ancestor's; of a directory the classes of all
    that lives in it, with `,` between them. Empty where there is none, or it is not known."""
    priority: str = ""
    """Koordinator's priority class of the target, else its pod's `.spec.priority`; empty where it is not known."""
    file: str
    """Key of the attribute: a path, `#` and the item in it."""
    before: str
    after: str
    reason: str
    dry_run: bool
    lease_seconds: float
    outcome: Outcome


class AuditFile:
    """Appends lines. The file of `bytes_most` is renamed to `.1`, that to `.2`, and so on; `files` are kept."""

    def __init__(self, path: Path, bytes_most: int, files: int) -> None:
        self._path = path
        self._bytes_most = bytes_most
        self._files = files
        self._fd = -1
        self.lost = 0

    def write(self, line: Line) -> None:
        """Append one line, or count it as lost."""
        content = msgspec.json.encode(line) + b"\n"
        try:
            if self._fd < 0 or os.fstat(self._fd).st_nlink == 0:
                self._open()
            size = os.fstat(self._fd).st_size
            if size and size + len(content) > self._bytes_most:
                self._rotate()
                size = 0
            if os.write(self._fd, content) != len(content):
                os.ftruncate(self._fd, size)
                self.lost += 1
        except OSError:
            self.lost += 1

    def _open(self) -> None:
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self._path, flags, 0o640)

    def _rotate(self) -> None:
        for number in range(self._files - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            newer = self._path.with_name(f"{self._path.name}.{number - 1}") if number > 1 else self._path
            if newer.exists():
                newer.rename(older)
        if self._files == 1:
            self._path.unlink(missing_ok=True)
        self._open()

    def close(self) -> None:
        """Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
