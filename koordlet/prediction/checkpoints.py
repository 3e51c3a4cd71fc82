"""Checkpoints of models on disk: a JSON file for each, named like its model and replaced at once."""

import logging
import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from api.kube.times import epoch_seconds
from detector.histograms import StoredHistogram
from koordlet.prediction.models import StoredModel

_log = logging.getLogger(__name__)

MAX_BYTES = 64 << 10
"""Size of a checkpoint file from which it is none: one with all buckets has 7 KiB."""
MAX_FILES = 4096
_TEMPORARY = ".tmp"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,250}")


class _WireHistogram(msgspec.Struct, frozen=True, rename="camel"):
    reference_timestamp: str
    bucket_weights: dict[int, int] = {}
    total_weight: float = 0.0


class _WireModel(msgspec.Struct, frozen=True):
    uid: str = msgspec.field(name="UID")
    cpu: _WireHistogram = msgspec.field(name="CPU")
    memory: _WireHistogram = msgspec.field(name="Memory")
    last_updated: str = msgspec.field(name="LastUpdated")


def encode(model: StoredModel) -> bytes:
    """Return the text of a checkpoint."""
    cpu, memory = _wire_histogram(model.cpu), _wire_histogram(model.memory)
    return msgspec.json.encode(_WireModel(model.name, cpu, memory, _stamp(model.updated_seconds)))


def decode(text: bytes, name: str) -> StoredModel:
    """Return the model in a checkpoint. Raises ValueError for a text that is none of `name`."""
    wire = msgspec.json.decode(text, type=_WireModel)
    updated = epoch_seconds(wire.last_updated)
    if wire.uid != name or updated is None:
        raise ValueError(f"a checkpoint of {wire.uid!r} updated at {wire.last_updated!r}")
    return StoredModel(name, updated, _histogram(wire.cpu), _histogram(wire.memory))


class CheckpointDirectory:
    """The directory of the checkpoints; a failed write or removal is counted and logged once in a row."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError where the directory cannot be made."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.failures = 0
        self._directory = directory
        self._failing = False

    def restore(self) -> Iterator[StoredModel]:
        """Yield every model; files that hold none are removed, other things in the directory are left alone."""
        with os.scandir(self._directory) as entries:
            found = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
        for name in found[:MAX_FILES]:
            path = self._directory / name
            if name.endswith(_TEMPORARY):
                self._remove(path)
                continue
            try:
                with path.open("rb") as file:
                    text = file.read(MAX_BYTES + 1)
                if len(text) > MAX_BYTES:
                    raise ValueError(f"more than {MAX_BYTES} bytes")
                model = decode(text, name)
            except (OSError, ValueError) as error:
                _log.warning("%s is no checkpoint and is removed: %s", path, error)
                self._remove(path)
                continue
            yield model

    def save(self, models: Iterable[StoredModel]) -> None:
        """Replace the checkpoints of these models."""
        for model in models:
            if not _is_name(model.name):
                continue
            path = self._directory / model.name
            temporary = path.with_name(path.name + _TEMPORARY)
            try:
                temporary.write_bytes(encode(model))
                temporary.replace(path)
            except OSError as error:
                self._note(f"the checkpoint {path} cannot be written: {error}")
            else:
                self._failing = False

    def remove(self, names: Iterable[str]) -> None:
        """Remove the checkpoints of these models."""
        for name in names:
            if _is_name(name):
                self._remove(self._directory / name)

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._note(f"the checkpoint {path} cannot be removed: {error}")

    def _note(self, problem: str) -> None:
        self.failures += 1
        if not self._failing:
            _log.warning("%s", problem)
        self._failing = True


def _is_name(name: str) -> bool:
    """Return whether a model's name is the name of a file in the directory and of nothing else."""
    return bool(_NAME.fullmatch(name)) and not name.endswith(_TEMPORARY)


def _histogram(wire: _WireHistogram) -> StoredHistogram:
    reference = epoch_seconds(wire.reference_timestamp)
    if reference is None:
        raise ValueError(f"a reference time {wire.reference_timestamp!r}")
    return StoredHistogram(reference, wire.bucket_weights, wire.total_weight)


def _wire_histogram(stored: StoredHistogram) -> _WireHistogram:
    return _WireHistogram(_stamp(stored.reference_seconds), stored.weights, stored.total)


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
