"""Suspects for costly measurement: cgroups that may be harmed, and their likely culprits."""

import numpy as np
from numpy.typing import NDArray

from detector.judging.engine import RuleEngine
from detector.judging.sensing import RuleTick
from detector.ring import positions

SUSPECT_THRESHOLD_RATIO = 0.5
"""Part of a threshold from which a cgroup is a suspect."""
MIN_SUSPECT_SHARE = 0.05
"""Part of a suspect's loss from which its culprit is one, too."""


def suspects(engine: RuleEngine) -> NDArray[np.bool_]:
    """Return rows of the newest tick that any symptom may harm or a model suspects, and their culprits.

    A superseded rule still makes suspects.
    """
    tick = engine.tick
    if tick is None:
        return np.zeros(0, dtype=np.bool_)
    nearly = (tick.lost >= tick.plain * SUSPECT_THRESHOLD_RATIO) | (engine.held > 0) | engine.memory.is_open
    harmed = nearly.any(axis=0) | tick.suspicious
    return harmed | _blamed(engine, tick, harmed) | _open_culprits(engine, tick)


def _blamed(engine: RuleEngine, tick: RuleTick, harmed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    found = np.zeros(len(harmed), dtype=np.bool_)
    ids = tick.view.ids
    for table in sorted(engine.tables):
        blame = tick.view.blame(table)
        if blame is None or not len(blame.victims):
            continue
        victim, known = positions(ids, blame.victims)
        notable = known & harmed[victim] & (blame.amounts >= MIN_SUSPECT_SHARE * blame.sums(ids)[victim])
        culprit, alive = positions(ids, blame.culprits[notable])
        found[culprit[alive]] = True
    return found


def _open_culprits(engine: RuleEngine, tick: RuleTick) -> NDArray[np.bool_]:
    """Culprits of the open verdicts, also those by correlation."""
    found = np.zeros(len(tick.view.ids), dtype=np.bool_)
    paths = {culprit.path for verdict in engine.open.values() for culprit in verdict.culprits}
    rows = [row for path in paths if (row := tick.view.tree.row_of(path)) is not None]
    found[rows] = True
    return found
