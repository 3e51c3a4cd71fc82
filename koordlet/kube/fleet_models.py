"""Anomaly models of this node's workloads from their profiles: checked, bounded, the last good ones kept."""

import logging
import threading
from collections.abc import Collection

from api.crds import DeliveredModels, WorkloadProfile
from detector.models.delivery import unpack
from detector.models.format import ModelFile, ModelsRefused

_log = logging.getLogger(__name__)

MAX_CHARS = 4 << 20
"""Of the packed models of all workloads on one node; those beyond are judged without."""


class FleetModels:
    """Takes profiles in one thread, gives the models to another when they changed."""

    def __init__(self) -> None:
        self.refused = 0
        """Deliveries that could not be used."""
        self._lock = threading.Lock()
        self._files: dict[str, tuple[str, int, ModelFile]] = {}
        """Checksum, size and models by workload."""
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
        if known is not None and known[0] == models.sha256:
            return
        try:
            others = sum(size for name, (_, size, _) in self._files.items() if name != workload)
            if others + len(models.data) > MAX_CHARS:
                raise ModelsRefused(f"the models of this node's workloads are more than {MAX_CHARS} characters")
            file = unpack(models.data, models.sha256, workload)
        except ModelsRefused as reason:
            if self._refused.get(workload) != models:
                self._refused[workload] = models
                self.refused += 1
                _log.warning("models of %s are not used, those before stay: %s", workload, reason)
            return
        self._refused.pop(workload, None)
        with self._lock:
            self._files[workload] = (models.sha256, len(models.data), file)
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
            files = [file for _, (_, _, file) in sorted(self._files.items())]
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
