"""Peak prediction of a running agent: samples at fixed times, checkpoints, and what is reported."""

import logging
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from api.qos import PriorityBand
from koordlet.identity.pod_lookup import band_with_default
from koordlet.identity.pods import PodFacts, PodTable
from koordlet.kube.node_metric import NODE, SYSTEM, UsageHistory, measured_key
from koordlet.kube.usage_series import Quantity
from koordlet.prediction import models
from koordlet.prediction.checkpoints import CheckpointDirectory
from koordlet.prediction.predictors import PredictedPod, Prediction, predict
from koordlet.prediction.settings import PredictionSettings

_log = logging.getLogger(__name__)

_GONE_SECONDS = 300.0
"""Time without a sample after which the model of a pod goes that the node no longer has: its uid does not come again,
and pods of jobs would leave one each. What a kubelet that starts lists late is back by then."""
_QUANTILE = 0.9
"""Quantile of a minute's usage that is learned."""


class PeakPrediction:
    """Learns from `UsageHistory` and predicts; times are monotonic unless called wall-clock."""

    def __init__(self, settings: PredictionSettings, wall_seconds: float) -> None:
        """Read the checkpoints; without a usable directory peaks are kept in memory only."""
        self.models = models.PeakModels()
        self._settings = settings
        self._trained_seconds = -math.inf
        self._seen_seconds: dict[str, float] = {}
        self._checkpoints = _open(settings.directory)
        if self._checkpoints is not None:
            refused = []
            for stored in self._checkpoints.restore():
                try:
                    self.models.load(stored, wall_seconds)
                except ValueError as error:
                    _log.warning("the checkpoint of %s is refused and removed: %s", stored.name, error)
                    refused.append(stored.name)
            self._checkpoints.remove(refused)

    @property
    def failures(self) -> int:
        """Checkpoints that could not be written or removed."""
        return self._checkpoints.failures if self._checkpoints else 0

    def step(self, history: UsageHistory, pods: PodTable, now_seconds: float, wall_seconds: float) -> None:
        """Learn from the usage since the last step when a step is due; save and forget models."""
        if self._trained_seconds == -math.inf:
            self._trained_seconds = now_seconds
        if now_seconds - self._trained_seconds < self._settings.train_seconds:
            return
        names, cores, memory = _samples(history, pods, self._trained_seconds)
        self._trained_seconds = now_seconds
        self.models.train(names, cores, memory, wall_seconds)
        expire_seconds = self._settings.expire_seconds
        gone = self.models.expire(
            wall_seconds - expire_seconds,
            wall_seconds - min(expire_seconds, _GONE_SECONDS if pods.pods else math.inf),
            {*names, *(pod.uid for pod in pods.pods)},
        )
        if self._checkpoints is not None:
            self._checkpoints.remove(gone)
            self._checkpoints.save(self.models.to_save(wall_seconds - self._settings.save_seconds, wall_seconds))

    def predict(self, pods: PodTable, allocatable: Mapping[str, int], wall_seconds: float) -> Prediction | None:
        """Return production's reclaimable amounts and peak; None while the node's own programs are unknown."""
        uids = {pod.uid for pod in pods.pods}
        self._seen_seconds = {uid: at for uid, at in self._seen_seconds.items() if uid in uids}
        parts = [models.node_item(part) for part in (models.SYSTEM, *(band.value for band in PriorityBand))]
        known = self.models.peaks([*(pod.uid for pod in pods.pods), *parts])
        return predict(
            [self._predicted(pod, wall_seconds) for pod in pods.pods],
            known,
            allocatable,
            margin_percent=self._settings.safety_margin_percent,
            cold_start_seconds=self._settings.cold_start_seconds,
        )

    def _predicted(self, pod: PodFacts, wall_seconds: float) -> PredictedPod:
        created_seconds = pod.created_seconds
        if created_seconds is None:  # as young as this agent knows it
            created_seconds = self._seen_seconds.setdefault(pod.uid, wall_seconds)
        age_seconds = max(wall_seconds - created_seconds, 0.0)
        return PredictedPod(pod.uid, band_with_default(pod), pod.requests, age_seconds, pod.active)


def _samples(
    history: UsageHistory, pods: PodTable, since_seconds: float
) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    """Return the names of models with a sample of CPU and memory each: pods, the node, its classes and its own."""
    planes = (Quantity.CPU, Quantity.MEMORY)
    of_pods = [history.pods.percentiles(each, since_seconds, _QUANTILE) for each in planes]
    of_node = [history.node.percentiles(each, since_seconds, _QUANTILE) for each in planes]
    keys = {pod.uid: measured_key(history, pod) for pod in pods.pods if pod.uid}
    samples = {uid: [each.get(key, math.nan) for each in of_pods] for uid, key in keys.items()}
    classes = {band.value: [0.0, 0.0] for band in PriorityBand}
    for pod in pods.pods:
        total = classes[band_with_default(pod).value]
        for plane, value in enumerate(samples.get(pod.uid, ())):
            total[plane] += 0.0 if math.isnan(value) else value
    samples[models.NODE] = [each.get(NODE, math.nan) for each in of_node]
    samples[models.node_item(models.SYSTEM)] = [each.get(SYSTEM, math.nan) for each in of_node]
    samples |= {models.node_item(name): total for name, total in classes.items()}
    columns = np.array(list(samples.values()), dtype=np.float64).T
    return list(samples), columns[0], columns[1]


def _open(directory: str) -> CheckpointDirectory | None:
    if not directory:
        return None
    try:
        return CheckpointDirectory(Path(directory))
    except OSError as error:
        _log.warning("peaks are kept in memory only: [prediction] directory %s: %s", directory, error)
        return None
