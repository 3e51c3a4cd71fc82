"""Questions that `koord-manager analyze` answers: each is one SQL text in the subset that DuckDB and Spark share.

Sums are weighed by `seconds`, so that rows of any grain may lie in one table. `{name}` in a text is a parameter: a
number or an expression from the price file.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """One question; `label` and `values` are the columns that a plot shows."""

    title: str
    sql: str
    label: str
    values: tuple[str, ...]
    unit: str
    is_line: bool = False


_USED = "(cpu_used_service_cores + cpu_used_batch_cores + cpu_used_other_cores)"

_UTILISATION = """
WITH sums AS (
  SELECT sum(cpu_used_service_cores * seconds) AS service, sum(cpu_used_batch_cores * seconds) AS batch,
         sum(cpu_used_other_cores * seconds) AS other, sum(logical_cores * seconds) AS logical,
         sum(physical_cores * seconds) AS physical
  FROM nodes)
SELECT class, round(used / 3600, 1) AS core_hours, round(100 * used / logical, 2) AS logical_percent,
       round(100 * used / physical, 2) AS physical_percent
FROM (SELECT 'service' AS class, service AS used, logical, physical FROM sums
      UNION ALL SELECT 'batch', batch, logical, physical FROM sums
      UNION ALL SELECT 'other', other, logical, physical FROM sums
      UNION ALL SELECT 'unused', logical - service - batch - other, logical, physical FROM sums) AS classes
ORDER BY core_hours DESC
"""

_RECLAIMABLE = """
SELECT node, round(max(logical_cores), 1) AS cores, round(avg(cpu_requested_cores), 2) AS requested_cores,
       round(sum(greatest(cpu_requested_cores - cpu_used_service_cores - cpu_used_other_cores, 0) * seconds)
             / sum(seconds), 2) AS reclaimable_cores,
       round(greatest(max(cpu_requested_cores) - max(cpu_used_service_cores + cpu_used_other_cores), 0), 2)
         AS reclaimable_at_peak_cores,
       round(sum(greatest(memory_requested_bytes - memory_used_service_bytes - memory_used_other_bytes, 0) * seconds)
             / sum(seconds) / 1073741824, 2) AS reclaimable_gib
FROM nodes GROUP BY node ORDER BY reclaimable_cores DESC, node
"""

_VICTIMS = """
SELECT victim_workload, resource, round(sum(lost_seconds), 1) AS lost_seconds,
       round(sum(CASE WHEN how = 'direct' THEN lost_seconds ELSE 0 END), 1) AS measured_seconds,
       count(DISTINCT node) AS nodes, round(max(lost_seconds / seconds), 3) AS worst_seconds_a_second
FROM verdicts GROUP BY victim_workload, resource ORDER BY lost_seconds DESC, victim_workload, resource
"""

_CULPRITS = """
SELECT culprit_workload, resource, round(sum(lost_seconds), 1) AS caused_seconds,
       round(sum(CASE WHEN how = 'direct' THEN lost_seconds ELSE 0 END), 1) AS measured_seconds,
       count(DISTINCT victim_workload) AS victims, count(DISTINCT node) AS nodes
FROM verdicts WHERE culprit <> '' AND culprit_workload <> victim_workload
GROUP BY culprit_workload, resource ORDER BY caused_seconds DESC, culprit_workload, resource
"""

_OVERCOMMIT = """
WITH use AS (
  SELECT floor(1000 * (cpu_used_service_cores + cpu_used_other_cores) / cpu_requested_cores + 0.5) / 1000 AS part,
         sum(seconds) AS seconds, sum(logical_cores * seconds) AS core_seconds
  FROM nodes WHERE cpu_requested_cores > 0
  GROUP BY floor(1000 * (cpu_used_service_cores + cpu_used_other_cores) / cpu_requested_cores + 0.5))
SELECT ratio, round(100 * sum(least(ratio * part, 1) * core_seconds) / sum(core_seconds), 2) AS utilisation_percent,
       round(100 * sum(CASE WHEN ratio * part > 1 THEN seconds ELSE 0 END) / sum(seconds), 4) AS overloaded_percent,
       round(sum(greatest(ratio * part - 1, 0) * core_seconds) / 3600, 1) AS missing_core_hours
FROM use CROSS JOIN (VALUES (1.0), (1.25), (1.5), (1.75), (2.0), (2.5), (3.0), (4.0)) AS ratios(ratio)
GROUP BY ratio ORDER BY ratio
"""

_APART = """
WITH pairs AS (
  SELECT victim_workload, culprit_workload, resource, sum(lost_seconds) AS lost, count(DISTINCT node) AS nodes,
         sum(CASE WHEN how = 'direct' THEN lost_seconds ELSE 0 END) AS measured,
         sum(seconds) AS together
  FROM verdicts WHERE culprit <> '' AND culprit_workload <> '' AND culprit_workload <> victim_workload
  GROUP BY victim_workload, culprit_workload, resource)
SELECT victim_workload, culprit_workload, resource, round(lost, 1) AS lost_seconds,
       round(lost / together, 4) AS lost_seconds_a_second, round(100 * measured / lost, 1) AS measured_percent, nodes
FROM pairs WHERE lost > 0 ORDER BY lost_seconds DESC, victim_workload, culprit_workload, resource
"""

_MEAN = """
SELECT CAST(date AS STRING) AS day,
       round(sum({used} * seconds) / 86400, 2) AS used_cores,
       round(100 * sum({used} * seconds) / sum(logical_cores * seconds), 2) AS logical_percent,
       round(100 * sum({used} * seconds) / sum(physical_cores * seconds), 2) AS physical_percent
FROM nodes GROUP BY CAST(date AS STRING) ORDER BY day
""".replace("{used}", _USED)

_STRANDED = """
WITH free AS (
  SELECT seconds, logical_cores, memory_total_bytes,
         greatest(1 - cpu_requested_cores / logical_cores, 0) AS cpu,
         greatest(1 - memory_requested_bytes / memory_total_bytes, 0) AS memory
  FROM nodes WHERE logical_cores > 0 AND memory_total_bytes > 0)
SELECT ran_out, round(sum(seconds) / 3600, 1) AS node_hours,
       round(sum(cpu * logical_cores * seconds) / sum(seconds), 2) AS stranded_cores_a_node,
       round(sum(memory * memory_total_bytes * seconds) / sum(seconds) / 1073741824, 2) AS stranded_gib_a_node
FROM (SELECT seconds, logical_cores, memory_total_bytes, cpu, memory,
             CASE WHEN cpu < 0.1 AND memory < 0.1 THEN 'both' WHEN memory < 0.1 THEN 'memory'
                  WHEN cpu < 0.1 THEN 'cpu' ELSE 'none' END AS ran_out FROM free) AS classed
GROUP BY ran_out ORDER BY node_hours DESC
"""

_COST = """
WITH use AS (
  SELECT {by} AS payer, sum(coalesce(cpu_request_cores, 0) * seconds) AS asked_cpu,
         sum(coalesce(memory_request_bytes, 0) * seconds) AS asked_memory,
         sum(coalesce(cpu_cores, 0) * seconds) AS used_cpu, sum(coalesce(memory_bytes, 0) * seconds) AS used_memory
  FROM profiles GROUP BY {by}),
harm AS (
  SELECT {culprit_by} AS payer, sum(lost_seconds) AS caused
  FROM verdicts WHERE culprit <> '' GROUP BY {culprit_by})
SELECT coalesce(use.payer, harm.payer) AS payer,
       round(coalesce(asked_cpu, 0) / 3600 * {cpu_core_hour}
             + coalesce(asked_memory, 0) / 3600 / 1073741824 * {memory_gib_hour}, 2) AS asked,
       round(coalesce(used_cpu, 0) / 3600 * {cpu_core_hour}
             + coalesce(used_memory, 0) / 3600 / 1073741824 * {memory_gib_hour}, 2) AS used,
       round(coalesce(caused, 0) / 3600 * {lost_hour}, 2) AS harm_caused
FROM use FULL OUTER JOIN harm ON use.payer = harm.payer
ORDER BY asked DESC, used DESC, payer
"""

ACTION_INTERVALS = """ends AS (
  SELECT node, target, file, time FROM actions WHERE outcome = 'restored' AND dry_run = 0),
begun AS (
  SELECT begun.node, begun.victim, begun.target, begun.time AS begins,
         coalesce(min(ends.time), max(begun.time + begun.lease_seconds)) AS ends
  FROM actions AS begun LEFT JOIN ends
    ON begun.node = ends.node AND begun.target = ends.target AND begun.file = ends.file AND ends.time > begun.time
  WHERE begun.outcome = 'set' AND begun.dry_run = 0 AND begun.victim <> ''
  GROUP BY begun.node, begun.victim, begun.target, begun.time)"""
"""Tables `begun` and `ends`: each action that one victim asked for, with its begin and its end."""

# An action is an interval: from its write to the first restoration of the same file, or to the end of its lease. All
# that one victim asked for within 900 s is one episode; what it earned is the loss rate of the 900 s before it less
# that during it. The price is what the targets used less: their use in the row before the action against the row that
# holds its begin. `hours` lets the engines join rows of profiles by equality, the hour or the one before, not a range.
_EARNED = """
WITH {intervals},
episodes AS (
  SELECT node, victim, min(begins) AS begins, max(ends) AS ends
  FROM begun GROUP BY node, victim, floor(begins / 900)),
rates AS (
  SELECT episodes.node, episodes.victim, max(victim_workload) AS victim_workload, begins, ends,
         sum(CASE WHEN verdicts.time < begins - verdicts.seconds / 2 THEN lost_seconds ELSE 0 END) / 900 AS before,
         sum(CASE WHEN verdicts.time >= begins - verdicts.seconds / 2 THEN lost_seconds ELSE 0 END)
           / greatest(ends - begins, max(verdicts.seconds)) AS during
  FROM episodes JOIN verdicts ON episodes.node = verdicts.node AND episodes.victim = verdicts.victim
   AND verdicts.time >= begins - 900 AND verdicts.time < ends
  GROUP BY episodes.node, episodes.victim, begins, ends),
hours AS (
  SELECT node, victim, target, begins, ends, floor(begins / 3600) AS hour FROM begun
  UNION ALL SELECT node, victim, target, begins, ends, floor(begins / 3600) - 1 FROM begun),
turns AS (
  SELECT hours.node, hours.victim, hours.target, begins, ends,
         max(CASE WHEN time <= begins - seconds AND time > begins - 2 * seconds THEN cpu_cores END) AS earlier,
         max(CASE WHEN time <= begins AND time > begins - seconds THEN cpu_cores END) AS later
  FROM hours JOIN profiles
    ON hours.node = profiles.node AND hours.target = profiles.path AND floor(profiles.time / 3600) = hours.hour
  GROUP BY hours.node, hours.victim, hours.target, begins, ends),
work AS (
  SELECT node, victim, floor(begins / 900) AS turn, sum(greatest(earlier - later, 0) * (ends - begins)) AS lost
  FROM turns GROUP BY node, victim, floor(begins / 900))
SELECT victim_workload, count(*) AS episodes, round(sum((before - during) * (ends - begins)), 1) AS given_back_seconds,
       round(sum(coalesce(work.lost, 0)), 1) AS work_lost_core_seconds
FROM rates LEFT JOIN work
  ON rates.node = work.node AND rates.victim = work.victim AND floor(rates.begins / 900) = work.turn
GROUP BY victim_workload ORDER BY given_back_seconds DESC, victim_workload
""".replace("{intervals}", ACTION_INTERVALS)

QUESTIONS: Mapping[str, Question] = {
    "utilisation": Question("CPU by class", _UTILISATION, "class", ("logical_percent",), "% of logical cores"),
    "reclaimable": Question(
        "Requested and not used", _RECLAIMABLE, "node", ("reclaimable_cores", "reclaimable_at_peak_cores"), "cores"
    ),
    "victims": Question("Time lost by victim", _VICTIMS, "victim_workload", ("lost_seconds",), "seconds"),
    "culprits": Question(
        "Time that culprits cost others", _CULPRITS, "culprit_workload", ("caused_seconds",), "seconds"
    ),
    "overcommit": Question(
        "What if requests were sold RATIO times the cores, and used as they are now",
        *(_OVERCOMMIT, "ratio", ("utilisation_percent", "overloaded_percent"), "%"),
        is_line=True,
    ),
    "apart": Question(
        "Workloads that should not share a node", _APART, "victim_workload", ("lost_seconds",), "seconds"
    ),
    "mean": Question(
        *("Mean use of all day", _MEAN, "day", ("logical_percent", "physical_percent"), "% of cores"), is_line=True
    ),
    "stranded": Question(
        "Free capacity by the resource that ran out", _STRANDED, "ran_out", ("stranded_cores_a_node",), "cores"
    ),
    "cost": Question("Cost: asked, used, and harm caused", _COST, "payer", ("asked", "used", "harm_caused"), "price"),
    "earned": Question(
        "What actions gave back and took", _EARNED, "victim_workload", ("given_back_seconds",), "seconds"
    ),
}
"""By name, as the command takes it."""
