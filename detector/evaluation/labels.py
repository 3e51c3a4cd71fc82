"""Labels: parsing, and selection of those about one recording; text in, values out."""

from collections.abc import Sequence
from datetime import tzinfo

import msgspec

from api.settings import SettingsError, convert, parse
from detector.evaluation.scoring import Label
from detector.explain.times import parse_time

LabelTime = float | str
"""Seconds since 1970, or text in one of `detector.explain.times.TIME_FORMS`."""


class WrittenLabel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[label]]`; see `detector.evaluation.Label`."""

    victim: str
    resource: str
    start: LabelTime = msgspec.field(name="from")
    end: LabelTime = msgspec.field(name="to")
    cause: str = ""
    culprit: str = ""
    tolerated: bool = False
    recording: str = ""
    """Name of the file or directory that it is about; empty: every recording that has its time."""


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    label: tuple[WrittenLabel, ...]


def load_labels(text: str, source: str) -> tuple[WrittenLabel, ...]:
    """Labels of a TOML, YAML or JSON text. Raises SettingsError naming the source and the key."""
    try:
        document = msgspec.json.decode(text) if source.endswith(".json") else parse(text, source)
    except msgspec.DecodeError as error:
        raise SettingsError(source, "", f"not readable: {error}") from error
    return convert(document, _Document, source).label


def labels_of(
    written: Sequence[WrittenLabel], recording: str, first_ns: int, last_ns: int, zone: tzinfo | None = None
) -> list[Label]:
    """Return the labels that are about a recording and lie within it. Raises ValueError for text that is no time."""
    found = []
    for each in written:
        if each.recording not in ("", recording):
            continue
        start, end = (_seconds(time, first_ns, last_ns, zone) for time in (each.start, each.end))
        if end < start:
            raise ValueError(f"the label of {each.victim} ends before it starts")
        if start * 1e9 <= last_ns and end * 1e9 >= first_ns:
            label = Label(
                victim=each.victim,
                resource=each.resource,
                cause=each.cause,
                culprit=each.culprit,
                start=start,
                end=end,
                tolerated=each.tolerated,
            )
            found.append(label)
    return found


def _seconds(time: LabelTime, first_ns: int, last_ns: int, zone: tzinfo | None) -> float:
    return time if isinstance(time, float) else parse_time(time, first_ns, last_ns, zone) / 1e9
