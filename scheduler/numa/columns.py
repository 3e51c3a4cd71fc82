"""Counts of free CPUs of all nodes as columns, so that one expression answers for the whole cluster."""

import numpy as np
import numpy.typing as npt

from scheduler.cluster_state.columns import Column, Row, Rows
from scheduler.cluster_state.snapshot import Snapshot
from scheduler.numa.hints import NumaPolicy
from scheduler.numa.machine import Machine
from scheduler.numa.topology import CpuBindPolicy

Ints = npt.NDArray[np.int64]

BIND_RULES = (CpuBindPolicy.NONE, CpuBindPolicy.FULL_PCPUS, CpuBindPolicy.SPREAD_BY_PCPUS)
"""A node's bind policy by number in the column."""

NUMA_RULES = tuple(NumaPolicy)
"""A node's NUMA policy by number in the column; from 2 on the policy is decided in Filter."""


class MachineColumns:
    """One value per row of the snapshot for each count; rows without a report have 0 threads per core."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._free, self._whole, self._cores, self._threads, self._bound, self._bind, self._policy = (
            snapshot.column(np.int64, 0) for _ in range(7)
        )
        self._ratio = snapshot.column(np.int64, 100)
        self._ruled: set[Row] = set()

    @property
    def any_rules(self) -> bool:
        """Return whether any node binds all pods, aligns them or is amplified."""
        return bool(self._ruled)

    def mirror(self, row: Row, machine: Machine) -> None:
        """Take over what a machine has free."""
        topology, free = machine.shape.topology, machine.free
        self._free.values[row] = len(free)
        self._whole.values[row] = len(topology.whole_cores(free))
        self._cores.values[row] = len(topology.first_threads(free))
        self._threads.values[row] = topology.threads_per_core
        self._bound.values[row] = machine.bound_millicores
        self._ratio.values[row] = round(machine.shape.amplification * 100)
        self._note(row)

    def rules(self, row: Row, bind: CpuBindPolicy, policy: NumaPolicy) -> None:
        """Take over what a node demands of all pods."""
        self._bind.values[row] = BIND_RULES.index(bind)
        self._policy.values[row] = NUMA_RULES.index(policy)
        self._note(row)

    def clear(self, row: Row) -> None:
        """The row holds no node any more."""
        for column in (self._free, self._whole, self._cores, self._threads, self._bound, self._bind, self._policy):
            column.values[row] = 0
        self._ratio.values[row] = 100
        self._ruled.discard(row)

    def _note(self, row: Row) -> None:
        ruled = self._bind.values[row] or self._policy.values[row] or self._ratio.values[row] > 100
        (self._ruled.add if ruled else self._ruled.discard)(row)

    def free(self, rows: Rows) -> Ints:
        """Free CPUs."""
        return _of(self._free, rows)

    def whole(self, rows: Rows) -> Ints:
        """Free CPUs of wholly free cores."""
        return _of(self._whole, rows)

    def cores(self, rows: Rows) -> Ints:
        """Cores with a free CPU."""
        return _of(self._cores, rows)

    def threads(self, rows: Rows) -> Ints:
        """Threads per core; 0 without a report."""
        return _of(self._threads, rows)

    def bound_millicores(self, rows: Rows) -> Ints:
        """CPU of pods with CPUs of their own, before amplification."""
        return _of(self._bound, rows)

    def hundredths(self, rows: Rows) -> Ints:
        """Amplification ratio of cpu in hundredths."""
        return _of(self._ratio, rows)

    def bind(self, rows: Rows) -> Ints:
        """Index into BIND_RULES."""
        return _of(self._bind, rows)

    def policy(self, rows: Rows) -> Ints:
        """Index into NUMA_RULES."""
        return _of(self._policy, rows)


def _of(column: Column, rows: Rows) -> Ints:
    return np.asarray(column.values[rows], dtype=np.int64)
