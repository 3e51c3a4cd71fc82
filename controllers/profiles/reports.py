"""Reports from exported tables: what each node's rows say of victims and neighbours, as sums. One SQL text.

A row of `verdicts` names victim and culprit; where the victim lost nothing to a neighbour that ran beside it, that
too is evidence, so every pair of containers of one node and time has a row. A verdict names a workload: what a victim
lost to it is divided among the workload's replicas beside the victim, as they used the CPUs.

An action on one neighbour, after which it used less of the node and the victim lost at most half as much, is a trial:
the loss that went is set against the use that went, of the row before the action and the first one within it. Where
two neighbours were restrained for one victim at about the same time, neither tells.
"""

from pathlib import Path
from typing import Any

import numpy as np

from api.kube.interference import RESOURCES
from controllers.analysis.engines import DuckDb
from controllers.analysis.questions import ACTION_INTERVALS
from controllers.profiles.merge import ALL, Evidence, Sums

LOAD_BINS = 5
_ALIASES = {"blockio": "block-io", "net": "network"}

_LEAST_FALL = 0.005
"""Share of the node that a restrained neighbour used less: what falls with less has another cause."""
_LEFT = 0.5
"""Part of its loss that a victim keeps at most, of which a trial tells."""

_SQL = """
WITH running AS (
  SELECT profiles.node, profiles.time, profiles.workload, profiles.seconds, profiles.cpu_cores AS cores, profiles.path,
         profiles.cpu_cores / nodes.logical_cores AS pressure,
         least(CASE WHEN cpu_request_cores > 0 THEN cpu_cores / cpu_request_cores ELSE cpu_cores END, 2) AS load
  FROM profiles JOIN nodes ON profiles.node = nodes.node AND profiles.time = nodes.time
  WHERE profiles.cpu_cores IS NOT NULL AND profiles.workload <> ''),
losses AS (
  SELECT node, time, victim, culprit_workload, how, resource, sum(lost_seconds) AS lost FROM verdicts
  GROUP BY node, time, victim, culprit_workload, how, resource),
suffering AS (SELECT DISTINCT node, victim, resource, how FROM losses WHERE how <> ''),
direct AS (
  SELECT victims.workload AS victim, others.workload AS neighbour, suffering.resource, 1 AS evidence, victims.node,
         victims.seconds, others.pressure, victims.load,
         coalesce(losses.lost, 0) / victims.seconds * others.pressure / greatest(sum(others.pressure) OVER (
           PARTITION BY victims.node, victims.time, victims.path, others.workload, suffering.resource), 1e-12) AS lost
  FROM suffering JOIN running AS victims ON suffering.node = victims.node AND suffering.victim = victims.path
  JOIN running AS others ON victims.node = others.node AND victims.time = others.time AND others.path <> victims.path
  LEFT JOIN losses ON losses.node = victims.node AND losses.time = victims.time AND losses.victim = victims.path
    AND losses.culprit_workload = others.workload AND losses.resource = suffering.resource AND losses.how = 'direct'
  WHERE suffering.how = 'direct'),
whole AS (
  SELECT node, time, victim, resource, sum(lost) AS lost FROM losses WHERE how = 'correlated'
  GROUP BY node, time, victim, resource),
beside AS (
  SELECT victims.node, victims.time, victims.path, sum(others.pressure) AS pressure
  FROM running AS victims JOIN running AS others
    ON victims.node = others.node AND victims.time = others.time AND others.path <> victims.path
  GROUP BY victims.node, victims.time, victims.path),
correlated AS (
  SELECT victims.workload AS victim, '' AS neighbour, suffering.resource, 0 AS evidence, victims.node, victims.seconds,
         beside.pressure, victims.load, coalesce(whole.lost, 0) / victims.seconds AS lost
  FROM suffering JOIN running AS victims ON suffering.node = victims.node AND suffering.victim = victims.path
  JOIN beside ON beside.node = victims.node AND beside.time = victims.time AND beside.path = victims.path
  LEFT JOIN whole ON whole.node = victims.node AND whole.time = victims.time AND whole.victim = victims.path
    AND whole.resource = suffering.resource
  WHERE suffering.how = 'correlated'),
parts AS (
  SELECT victims.workload AS victim, others.workload AS neighbour, suffering.resource, 0 AS evidence, victims.node,
         victims.seconds, others.pressure, victims.load, beside.pressure AS lost
  FROM suffering JOIN running AS victims ON suffering.node = victims.node AND suffering.victim = victims.path
  JOIN running AS others ON victims.node = others.node AND victims.time = others.time AND others.path <> victims.path
  JOIN beside ON beside.node = victims.node AND beside.time = victims.time AND beside.path = victims.path
  WHERE suffering.how = 'correlated'),
{intervals},
felt AS (SELECT node, time, victim, resource, sum(lost) AS lost FROM losses GROUP BY node, time, victim, resource),
restrained AS (
  SELECT begun.node, begun.victim, begun.target, felt.resource, begins, victims.workload, victims.load,
         earlier.workload AS neighbour, earlier.seconds, earlier.pressure - later.pressure AS pressure,
         felt.lost / earlier.seconds AS lost, coalesce(rest.lost, 0) / later.seconds AS rest
  FROM begun
  JOIN running AS earlier ON earlier.node = begun.node AND earlier.path = begun.target
    AND earlier.time <= begins - earlier.seconds AND earlier.time > begins - 2 * earlier.seconds
  JOIN running AS later ON later.node = begun.node AND later.path = begun.target
    AND later.time >= begins AND later.time < begins + later.seconds AND later.time + later.seconds <= ends
  JOIN running AS victims
    ON victims.node = begun.node AND victims.path = begun.victim AND victims.time = earlier.time
  JOIN felt ON felt.node = begun.node AND felt.victim = begun.victim AND felt.time = earlier.time
  LEFT JOIN felt AS rest ON rest.node = begun.node AND rest.victim = begun.victim AND rest.time = later.time
    AND rest.resource = felt.resource),
tried AS (
  SELECT workload AS victim, neighbour, resource, 2 AS evidence, node, seconds, pressure, load, lost - rest AS lost
  FROM restrained WHERE pressure > {least_fall} AND rest <= {left} * lost AND NOT EXISTS (
    SELECT 1 FROM begun AS others WHERE others.node = restrained.node AND others.victim = restrained.victim
      AND others.target <> restrained.target AND abs(others.begins - restrained.begins) < 2 * restrained.seconds)),
joined AS (
  SELECT * FROM direct UNION ALL SELECT * FROM correlated UNION ALL SELECT * FROM parts UNION ALL SELECT * FROM tried)
SELECT victim, neighbour, resource, evidence, node, least(floor(load * 2.5), 4) AS load_bin, sum(seconds),
       sum(seconds * pressure), sum(seconds * pressure * pressure), sum(seconds * lost),
       sum(seconds * lost * pressure), sum(seconds * load), sum(seconds * load * load),
       sum(seconds * load * pressure), sum(seconds * load * lost)
FROM joined GROUP BY victim, neighbour, resource, evidence, node, least(floor(load * 2.5), 4)
ORDER BY victim, neighbour, resource, evidence, node, load_bin
"""
_SQL = (
    _SQL.replace("{intervals}", ACTION_INTERVALS)
    .replace("{least_fall}", str(_LEAST_FALL))
    .replace("{left}", str(_LEFT))
)


def collect(lake: Path) -> tuple[list[str], dict[str, Sums]]:
    """Return the names of workloads and, by resource, what the tables say. Raises Unsupported, QueryError."""
    with DuckDb(lake) as engine:
        rows = engine.ask(_SQL).rows
    names = sorted({name for row in rows for name in row[:2] if name})
    number = {name: place for place, name in enumerate(names)} | {"": ALL}
    nodes = {name: place for place, name in enumerate(sorted({row[4] for row in rows}))}
    by_resource: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        resource = _ALIASES.get(row[2], row[2])
        if resource in RESOURCES:
            by_resource.setdefault(resource, []).append(row)
    return names, {resource: _sums(own, number, nodes) for resource, own in by_resource.items()}


def _sums(rows: list[tuple[Any, ...]], number: dict[str, int], nodes: dict[str, int]) -> Sums:
    return Sums(
        np.array([number[row[0]] for row in rows], np.intp),
        np.array([number[row[1]] for row in rows], np.intp),
        np.array([Evidence(row[3]) for row in rows], np.int64),
        np.array([int(row[5]) for row in rows], np.int64),
        np.array([nodes[row[4]] for row in rows], np.intp),
        *(np.array([float(row[place]) for row in rows]) for place in range(6, 15)),
    )
