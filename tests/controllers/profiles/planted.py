"""A cluster with planted sensitivities and strengths, and what its nodes would report."""

from dataclasses import dataclass

import numpy as np

from controllers.profiles.merge import ALL, Evidence, Sums

BINS = 5


@dataclass(frozen=True)
class Planted:
    sensitivity: np.ndarray
    strength: np.ndarray
    sums: Sums


def planted(
    seed: int, workloads: int = 40, nodes: int = 200, each: int = 8, hours: int = 48, parts_told: bool = True
) -> Planted:
    """`each` workloads a node at random; losses of every fifth are only correlated, and largely its load's.

    With `parts_told` the neighbours' parts in the pressure beside a correlated loss are told.
    Loads follow the same day everywhere, so that load and pressure move together; measured losses err by 40 %.
    """
    draw = np.random.default_rng(seed)
    sensitivity = draw.lognormal(-1.5, 0.8, workloads)
    strength = draw.lognormal(0.0, 0.6, workloads)
    use = draw.uniform(0.03, 0.15, workloads)
    confounded = np.arange(workloads) % 5 == 0
    day = 1 + 0.5 * np.sin(2 * np.pi * np.arange(hours * 4) / 96)
    parts = []
    for node in range(nodes):
        members = draw.choice(workloads, each, replace=False)
        load = day[:, None] * draw.lognormal(0, 0.25, (len(day), each))
        pressure = use[members] * load
        for place, victim in enumerate(members):
            others = [other for other in range(each) if other != place]
            harm = sensitivity[victim] * strength[members] * pressure
            bins = np.clip((load[:, place] * 2).astype(int), 0, BINS - 1)
            total = harm[:, others].sum(axis=1) + 0.15 * sensitivity[victim] * load[:, place] ** 2
            mine = load[:, place]
            told = pressure[:, others].sum(axis=1)
            for other in [ALL, *(others if parts_told else ())] if confounded[victim] else others:
                if other == ALL:
                    p, lost = told, total * draw.normal(1, 0.1, len(day))
                    neighbour, kind = ALL, Evidence.CORRELATED
                elif confounded[victim]:
                    p, lost = pressure[:, other], told
                    neighbour, kind = members[other], Evidence.CORRELATED
                else:
                    p, lost = pressure[:, other], harm[:, other] * draw.normal(1, 0.4, len(day))
                    neighbour, kind = members[other], Evidence.DIRECT
                columns = (p * 0 + 1, p, p * p, lost, lost * p, mine, mine * mine, mine * p, mine * lost)
                rows = [np.bincount(bins, weights=900 * column, minlength=BINS) for column in columns]
                parts.append((victim, neighbour, int(kind), node, np.array(rows)))
    count = len(parts)
    columns = np.stack([part[4] for part in parts])  # (parts, 9, BINS)
    wide = [np.repeat(np.array([part[place] for part in parts]), BINS) for place in range(4)]
    moments = [columns[:, row].ravel() for row in range(9)]
    sums = Sums(wide[0], wide[1], wide[2], np.tile(np.arange(BINS), count), wide[3], *moments)
    return Planted(sensitivity, strength, sums)
