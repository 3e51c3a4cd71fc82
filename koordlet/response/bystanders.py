"""Bystanders of a rung: who lives below its lever, costs the victim nothing, and may not lose for it."""

import numpy as np

from api.cgroup_path import lineage
from koordlet.response.applied_rung import AppliedRung
from koordlet.response.history import History
from koordlet.response.observation import Observation
from koordlet.response.rungs.limits import loss_budget
from koordlet.response.settings import ResponseSettings
from koordlet.response.trial import bystander_harmed

_LEAST_CORES = 0.01
_GOOD_PART = 0.1
"""Part of a directory's CPU time: with less of it a culprit may cost a victim nothing in one tick by chance."""
_WOKEN_TICKS = 2


def find_bystanders(
    observation: Observation, applied: AppliedRung, history: History, settings: ResponseSettings
) -> dict[str, float]:
    """Return the busy cgroups that an action reaches besides the culprit and that cost the victim nothing much, with
    what they lose; and within a culprit that is a directory those that cost it nothing at all."""
    culprit, victim = applied.interference.culprit, applied.interference.victim
    targets = {intent.target for intent in applied.intents} - {victim}
    own = set(observation.subtrees.rows(culprit).tolist())
    reached = set(_uninvolved_members(observation, applied)) if targets else set()
    for target in targets - {culprit}:
        for row in observation.subtrees.rows(target).tolist():
            if row in own or not observation.cpu_cores[row] > _LEAST_CORES:
                continue
            if _costs_nothing(observation, applied, observation.cgroups[row].path, settings):
                reached.add(row)
    paths = [observation.cgroups[row].path for row in sorted(reached)]
    return {path: before for path in paths if (before := history.held_up_lately(path)) == before}


def _uninvolved_members(observation: Observation, applied: AppliedRung) -> list[int]:
    """Return the rows of a directory, named for many small culprits in it, that use a good part of its CPU time and
    cost the victim nothing; none where own CPU time is not measured, or losses are not told apart by culprit."""
    culprit, victim, resource = applied.interference.pair
    rows = observation.subtrees.rows(culprit)
    if len(rows) < 2 or observation.cpu_waits is None or observation.blame_of(resource) is None:
        return []
    if not observation.lost_to(victim, culprit, resource) > 0:
        return []  # a verdict outlasts its loss
    accused = {each.path for one in observation.verdicts if one.victim == victim for each in one.culprits} - {culprit}
    cores = observation.cpu_cores[rows]
    busy = rows[cores > max(_LEAST_CORES, _GOOD_PART * float(np.nansum(cores)))].tolist()
    paths = {row: observation.cgroups[row].path for row in busy}
    return [
        row
        for row, path in paths.items()
        if accused.isdisjoint(lineage(path)) and not observation.lost_to(victim, path, resource) > 0
    ]


def busy_members(observation: Observation, culprit: str) -> frozenset[str]:
    """Return the cgroups within a culprit, itself included, that use CPU time or wait for it."""
    rows = observation.subtrees.rows(culprit)
    busy = rows[observation.wanted_cores[rows] > _LEAST_CORES].tolist()
    return frozenset(observation.cgroups[row].path for row in busy)


def is_bystander_hurt(
    observation: Observation, applied: AppliedRung, history: History, settings: ResponseSettings
) -> bool:
    """Return whether a bystander loses more than before, by more than a rung may cost it."""
    if observation.now_seconds - applied.at_seconds < settings.settle_seconds + 1:
        return False
    return any(
        bystander_harmed(
            before=before,
            now=history.held_up(path, 2),
            progress_cores=observation.used_by(path),
            budget=settings.loss_budget_seconds_per_second,
        )
        for path, before in applied.bystanders.items()
    )


def is_woken_member_hurt(observation: Observation, applied: AppliedRung, settings: ResponseSettings) -> bool:
    """Return whether a cgroup that was idle when the directory it lives in was limited now wakes and waits for that.

    It has done nothing to the victim, and the limit was made for what the others used.
    """
    if applied.limit_state is None or observation.held_up is None or applied.lifted:
        return False
    rows = observation.subtrees.rows(applied.interference.culprit)
    if len(rows) < 2:
        return False
    waiting = rows[observation.held_up[rows] > settings.loss_budget_seconds_per_second].tolist()
    ticks: dict[str, int] = {}
    for row in waiting:
        path = observation.cgroups[row].path
        if path in applied.members or not _costs_nothing(observation, applied, path, settings):
            continue
        harmed = bystander_harmed(
            before=0.0,
            now=float(observation.held_up[row]),
            progress_cores=float(observation.cpu_cores[row]),
            budget=settings.loss_budget_seconds_per_second,
        )
        if harmed:
            ticks[path] = applied.woken.get(path, 0) + 1
    applied.woken = ticks
    return max(ticks.values(), default=0) >= _WOKEN_TICKS


def _costs_nothing(observation: Observation, applied: AppliedRung, path: str, settings: ResponseSettings) -> bool:
    victim, resource = applied.interference.victim, applied.interference.resource
    return observation.lost_to(victim, path, resource) <= loss_budget(observation, victim, resource, settings)
