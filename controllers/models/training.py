"""What becomes of each workload's models tonight: delivered, kept or withdrawn, by trials on its latest rows. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from api.crds import DeliveredModels
from api.kube.times import rfc3339
from detector.baselines.values import WorkloadKey
from detector.models.delivery import pack, unpack
from detector.models.fit import FitPolicy, fit_workload
from detector.models.format import SCHEMA, ModelFile, ModelsRefused, WorkloadModel
from detector.models.profiles import Columns, by_workload
from detector.models.trial import LOSS, Ordinary, Trial, trial

LEARNED = (
    "cpu_cores",
    LOSS,
    "cpu_wait_self",
    "cpu_waits",
    "cpu_involuntary_switches",
    "cpi",
    "memory_stall",
    "blockio_requests",
    "blockio_wait",
    "network_packets",
    "requests",
)
"""Features that models learn: what a container does, and what it loses. Sizes drift, and are left out."""
KNOWN_PART = 0.95
"""Part of a workload's rows that must have a feature, or it is not learned."""
TRAINED_PART = 0.7
"""Of the rows by time; the later ones are held out for the trial."""
DELIVER_GAIN = 0.05
"""Recall that a model must add, at no more false verdicts and at no more time under them, to be delivered."""
KEEP_GAIN = 0.02
"""Recall that it must still add on the newest rows, or it is withdrawn."""
MOST_FALSE_ALARMS = 0.05
"""Part of the ordinary rows on which a model may raise an alarm, whatever it gains."""


class Outcome(StrEnum):
    """What becomes of a workload's models."""

    DELIVER = "deliver"
    KEEP = "keep"
    WITHDRAW = "withdraw"
    NONE = "none"
    """There is none, and none is good enough."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One workload."""

    workload: str
    outcome: Outcome
    reason: str
    models: DeliveredModels | None = None
    """What to deliver."""


def decide(
    columns: Columns,
    present: Mapping[str, DeliveredModels],
    policy: FitPolicy,
    now: float,
    workloads: Sequence[str] | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[Decision]:
    """Return a decision for each workload of the rows, and for those that have models and no rows.

    `columns` are those of `detector.models.profiles.read_profiles`; rows marked `interference` are left out. `progress`
    is told how many of all workloads are decided.
    """
    features = tuple(name for name in LEARNED if name in columns and columns[name].dtype.kind in "fiu")
    rows: dict[str, dict[WorkloadKey, Ordinary]] = {}
    if LOSS in features and len(columns["workload"]):
        count = len(columns["workload"])
        times = columns["time"] if "time" in columns else np.arange(count)
        paths = columns["path"].astype(np.str_) if "path" in columns else np.full(count, "")
        series = np.unique(paths, return_inverse=True)[1]
        timed = {**columns, "time": times.astype(np.float64), "series": series}
        for key, (own, harmed) in by_workload(timed, ("time", "series", *features)).items():
            ordinary = own if harmed is None else own[~harmed]
            sorted_ = ordinary[np.argsort(ordinary[:, 0], kind="stable")]
            rows.setdefault(key.workload, {})[key] = Ordinary(sorted_[:, 2:], sorted_[:, 0], sorted_[:, 1])
    names = sorted({*rows, *present} if workloads is None else workloads)
    made = []
    for name in names:
        made.append(_decided(name, features, rows.get(name, {}), present.get(name), policy, now))
        progress(len(made), len(names))
    return made


def _decided(
    workload: str,
    features: tuple[str, ...],
    rows: Mapping[WorkloadKey, Ordinary],
    present: DeliveredModels | None,
    policy: FitPolicy,
    now: float,
) -> Decision:
    gain, why = _still(workload, features, rows, present)
    found = _fitted(features, rows, policy, now)
    if found is not None:
        fresh, trials = found
        better = min(map(_worth, trials))
        if better >= DELIVER_GAIN and (gain is None or better > gain):
            packed = pack(fresh)
            if packed is not None:
                models = _delivered(packed, trials, now)
                return Decision(workload, Outcome.DELIVER, _words(trials), models)
    if present is None:
        reason = "too few ordinary rows" if found is None else f"not good enough: {_words(found[1])}"
        return Decision(workload, Outcome.NONE, reason)
    if gain is None or gain < KEEP_GAIN:
        return Decision(workload, Outcome.WITHDRAW, why)
    return Decision(workload, Outcome.KEEP, why)


def _still(
    workload: str, features: tuple[str, ...], rows: Mapping[WorkloadKey, Ordinary], present: DeliveredModels | None
) -> tuple[float | None, str]:
    """Return what the present models gain on the held-out rows, None where that cannot be said, and a sentence."""
    if present is None:
        return None, ""
    try:
        file = unpack(present.data, present.sha256, workload)
    except ModelsRefused as refused:
        return None, f"its models cannot be read: {refused}"
    missing = [name for name in file.features if name not in features]
    if missing:
        return None, f"{missing[0]} is not measured any more"
    places = [features.index(name) for name in file.features]
    keys = {model.key for model in file.models}
    trials = [
        found
        for key, own in rows.items()
        if key in keys and (found := trial(file, key, _held_out(own).with_features(places))) is not None
    ]
    if not trials:
        return None, "it has too few ordinary rows to try its models on"
    return min(map(_worth, trials)), _words(trials)


def _held_out(rows: Ordinary) -> Ordinary:
    return rows.take(slice(_cut(rows), None))


def _cut(rows: Ordinary) -> int:
    return int(TRAINED_PART * len(rows))


def _worth(trial: Trial) -> float:
    return trial.gain if trial.false_alarms <= MOST_FALSE_ALARMS else -1.0


def _fitted(
    features: tuple[str, ...], rows: Mapping[WorkloadKey, Ordinary], policy: FitPolicy, now: float
) -> tuple[ModelFile, list[Trial]] | None:
    """Return the models whose trial is good, or the best one there is, of one workload, with their trials."""
    tried: list[tuple[WorkloadModel, Trial]] = []
    whole = [own.values for own in rows.values() if len(own)]
    if not whole:
        return None
    known = np.isfinite(np.concatenate(whole)).mean(axis=0) >= KNOWN_PART
    chosen = tuple(name for name, use in zip(features, known, strict=True) if use)
    if LOSS not in chosen:
        return None
    for key, own in rows.items():
        wanted = own.with_features(known)
        model = fit_workload(key, wanted.values[: _cut(own)], None, policy)
        if model is None:
            continue
        result = trial(ModelFile(SCHEMA, chosen, now, (model,)), key, _held_out(wanted))
        if result is not None:
            tried.append((model, result))
    if not tried:
        return None
    good = [each for each in tried if _worth(each[1]) >= DELIVER_GAIN] or [max(tried, key=lambda each: each[1].gain)]
    file = ModelFile(SCHEMA, chosen, now, tuple(model for model, _ in good))
    return file, [result for _, result in good]


def _delivered(packed: tuple[str, str], trials: Sequence[Trial], now: float) -> DeliveredModels:
    rows = sum(each.rows for each in trials)

    def mean(values: Sequence[float]) -> float:
        return round(sum(value * each.rows for value, each in zip(values, trials, strict=True)) / rows, 4)

    return DeliveredModels(
        data=packed[0],
        sha256=packed[1],
        recall=mean([each.recall for each in trials]),
        plain_recall=mean([each.plain_recall for each in trials]),
        false_alarms=mean([each.false_alarms for each in trials]),
        rows=rows,
        trained_time=rfc3339(now),
    )


def _words(trials: Sequence[Trial]) -> str:
    worst = min(trials, key=_worth)
    return (
        f"finds {100 * worst.recall:.0f} % of planted slow harm, a threshold {100 * worst.plain_recall:.0f} % at no"
        f" more false verdicts ({worst.false_verdicts}) or no more time under them"
        f" ({100 * worst.under_false_verdicts:.1f} %); {100 * worst.false_alarms:.2f} % false alarms in"
        f" {worst.rows} held-out rows"
    )
