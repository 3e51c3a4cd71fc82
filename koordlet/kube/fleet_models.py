"""Anomaly models of this node's workloads from their profiles: checked, bounded, the last good ones kept."""

import logging
import threading
from collections.abc import Collection
from dataclasses import dataclass

from api.crds import DeliveredModels, WorkloadProfile
from detector.models.delivery import decode, unpack_plain
from detector.models.format import ModelFile, ModelsRefused

_log = logging.getLogger(__name__)

MAX_CHARS = 4 << 20
"""Of the packed models of all workloads on one node; those beyond are judged without."""
MAX_BYTES = 16 << 20
"""Of the same as JSON: a text that packs well may unpack to hundreds of times its size."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Models of one workload with their sizes."""

    sha256: str
    chars: int
    plain_bytes: int
    file: ModelFile


class FleetModels:
    """Takes profiles in one thread, gives the models to another when they changed."""

    def __init__(self) -> None:
        self.refused = 0
        """Deliveries that could not be used."""
        self._lock = threading.Lock()
        self._files: dict[str, _Kept] = {}
        """By workload."""
        self._refused: dict[str, DeliveredModels] = {}
        """The last refused delivery by workload, which is told once; there may be room for it later."""
        self._changed = False

    def heard(self, workload: str, profile: WorkloadProfile | None) -> None:
        """Take in a workload's profile, None where there is none: its models were withdrawn."""
        models = profile.status.models if profile is not None else None
        if models is None:
            self._drop(workload)
            return
        known = self._files.get(workload)
        if known is not None and known.sha256 == models.sha256:
            return
        try:
            others = [kept for name, kept in self._files.items() if name != workload]
            if sum(kept.chars for kept in others) + len(models.data) > MAX_CHARS:
                raise ModelsRefused(f"the models of this node's workloads are more than {MAX_CHARS} characters")
            plain = unpack_plain(models.data, models.sha256)
            if sum(kept.plain_bytes for kept in others) + len(plain) > MAX_BYTES:
                raise ModelsRefused(f"the models of this node's workloads unpack to more than {MAX_BYTES} bytes")
            file = decode(plain, workload)
        except ModelsRefused as reason:
            if self._refused.get(workload) != models:
                self._refused[workload] = models
                self.refused += 1
                _log.warning("models of %s are not used, those before stay: %s", workload, reason)
            return
        self._refused.pop(workload, None)
        with self._lock:
            self._files[workload] = _Kept(models.sha256, len(models.data), len(plain), file)
            self._changed = True

    def keep(self, workloads: Collection[str]) -> None:
        """Forget workloads that are not among those that run here."""
        for name in [*self._files, *self._refused]:
            if name not in workloads:
                self._drop(name)

    def take(self) -> tuple[ModelFile, ...] | None:
        """Return the models in effect, one file for each list of features; None where nothing changed."""
        with self._lock:
            if not self._changed:
                return None
            self._changed = False
            files = [self._files[workload].file for workload in sorted(self._files)]
        merged: dict[tuple[str, ...], ModelFile] = {}
        for file in files:
            before = merged.get(file.features)
            models = (*before.models, *file.models) if before else file.models
            merged[file.features] = ModelFile(file.schema, file.features, file.trained_seconds, models)
        return tuple(merged[features] for features in sorted(merged))

    def _drop(self, workload: str) -> None:
        self._refused.pop(workload, None)
        with self._lock:
            if self._files.pop(workload, None) is not None:
                self._changed = True
