"""Inputs and outputs of baselines: samples and judgements as columns, cells as records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

LOWEST_OCTAVE = -7
OCTAVES = 28
"""Loads from 2**-7 (cores or requests/s) to 2**20; what lies beyond shares the outermost octave."""


class WorkloadKey(msgspec.Struct, frozen=True, cache_hash=True):
    """Workload that a baseline describes; pods of one workload share it, on all nodes of one type."""

    workload: str
    """Owner kind and name with the namespace, or the unit or image where nothing owns the container."""
    container: str = ""
    node_type: str = ""
    """CPU model or instance type."""


class LoadKind(IntEnum):
    """Unit of a container's load."""

    CPU_DEMAND_CORES = 0
    REQUESTS_PER_SECOND = 1


class BaselineState(IntEnum):
    """Foundation of a judgement."""

    UNKNOWN = 0
    """This workload was never seen at this load."""
    WARMING_UP = 1
    """Too few samples, or too few that are recent; no score is given."""
    READY = 2
    BORROWED = 3
    """Answered by the next higher octave of load."""


class BaselinePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Learning and forgetting of baselines."""

    half_life_seconds: Annotated[float, msgspec.Meta(ge=60)] = 3 * 86_400.0
    """After this time a sample weighs half."""
    warm_samples: Annotated[float, msgspec.Meta(ge=1)] = 60.0
    """Aged weight of samples from which a baseline may judge; replicas' samples of one tick weigh as one."""
    warm_periods: Annotated[int, msgspec.Meta(ge=1)] = 3
    """Different periods in which these samples must have been taken."""
    period_seconds: Annotated[float, msgspec.Meta(ge=1)] = 60.0
    forget_weight: Annotated[float, msgspec.Meta(ge=0)] = 0.5
    """`forget` drops cells whose aged weight is below this."""
    exclude_seconds: Annotated[float, msgspec.Meta(ge=0)] = 3600.0
    """A verdict by usual values keeps its victim's samples out for this long; what lasts longer, in one verdict or in
    several of the last half-lives, becomes ordinary. Other verdicts keep them out until they close."""
    max_cells: Annotated[int, msgspec.Meta(ge=0)] = 40_000
    """Workload x signal x load cells kept; a cell takes about 1 KiB. Samples that find no room are counted in
    `refused`."""


@dataclass(frozen=True, slots=True)
class BaselineSample:
    """One window of all containers as columns of length n."""

    keys: Sequence[WorkloadKey]
    load: NDArray[np.float64]
    load_kind: NDArray[np.int64]
    values: Mapping[str, NDArray[np.float64]]
    """By signal name, in any unit as long as a signal keeps to one; higher is worse; NaN is not measured."""
    surroundings: frozenset[str] = frozenset()
    """Signals that tell of the neighbours and not of the container: any level of theirs is learned."""
    at_any_load: frozenset[str] = frozenset()
    """Signals that have one baseline for all loads."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One signal against its baselines; columns of length n, all but `extreme` NaN unless READY or BORROWED."""

    expected: NDArray[np.float64]
    """Median."""
    spread: NDArray[np.float64]
    """Upper quartile distance as standard deviations, at least the sketch's resolution."""
    upper: NDArray[np.float64]
    """99th percentile; where a higher level was accepted, that of this level."""
    score: NDArray[np.float64]
    """(value - expected) / spread, positive when worse than ordinary."""
    state: NDArray[np.int64]
    """A `BaselineState` each."""
    samples: NDArray[np.int64]
    """Ticks in which the baseline that answers ever took samples."""
    age_seconds: NDArray[np.float64]
    """Since the first sample; NaN where there is none."""
    extreme: NDArray[np.float64]
    """Quantile 0.999 of what was learned, from ten samples on, whatever the state; of fewer than 3,000 the tail of
    all but the three highest, continued to twice the highest of these at most."""


@dataclass(frozen=True, slots=True)
class CellRecord:
    """One cell as a plain record for file, export and merge; weights are as of the time of the call."""

    key: WorkloadKey
    signal: str
    load_kind: LoadKind
    octave: int
    """Load from 2**octave to 2**(octave + 1)."""
    samples: int
    weight: float
    first_seconds: float
    last_seconds: float
    buckets: tuple[int, ...]
    counts: tuple[float, ...]
    ordinary_octave: float | None = None
    """Ordinary level, as a power of two; None: that of the sketch's median."""
    kept_until_seconds: float = 0.0
    """Until then the level stays ordinary without being seen, since it was told and accepted."""
    fall: float = 0.0
    """Mean of the roots of the ways down, in octaves, from period to period ..."""
    falls: float = 0.0
    """... of so many periods."""


class ToldTime(msgspec.Struct, frozen=True):
    """Time for which verdicts of a rule about a cgroup were open: it counts until their loss is usual."""

    victim: str
    """Path of the cgroup."""
    rule: str
    seconds: float
    """Not aged since `until_seconds`."""
    until_seconds: float
    """Wall-clock time at which the last of them closed; where it is open, that of the newest tick."""
