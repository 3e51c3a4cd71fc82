"""Arguments of MigrationController, by Koordinator's names."""

from typing import Annotated, Any, Literal

import msgspec

from api.kube.times import duration_seconds
from controllers.descheduler.eviction_filter import FilterArgs


class ObjectLimiter(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Moves of one workload: `max_migrating` in each `duration`."""

    duration: str = "5m"
    max_migrating: int | str | None = None
    bucket: int | None = None


class Arbitration(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Choice among waiting jobs."""

    enabled: bool = True
    interval: str = "500ms"


class MigrationArgs(FilterArgs, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Which pods may be moved, how many at once, and how."""

    dry_run: bool = False
    max_concurrent_reconciles: int = 1
    object_limiters: dict[str, ObjectLimiter] = {}
    default_job_mode: Literal["ReservationFirst", "EvictDirectly"] = "ReservationFirst"
    default_job_ttl: str = msgspec.field(default="5m", name="defaultJobTTL")
    evict_qps: Annotated[float, msgspec.Meta(gt=0)] = msgspec.field(default=10.0, name="evictQPS")
    evict_burst: Annotated[int, msgspec.Meta(ge=1)] = 1
    eviction_policy: Literal["Eviction", "Delete", "SoftEviction"] = "Eviction"
    default_delete_options: dict[str, Any] = {}
    scheduler_names: tuple[str, ...] = ("koord-scheduler",)
    arbitration_args: Arbitration = Arbitration()
    scavenge_seconds: Annotated[float, msgspec.Meta(ge=0)] = 300.0
    """Time after its ttl for which an ended job stays; of one without a ttl six times as long."""

    @property
    def workload_limiter(self) -> ObjectLimiter:
        """Limit of the moves of one workload over time."""
        return self.object_limiters.get("workload", ObjectLimiter())

    @property
    def remembered_seconds(self) -> float:
        """Time for which a move counts against its workload."""
        return duration_seconds(self.workload_limiter.duration) or 0.0

    @property
    def ttl_seconds(self) -> float:
        """Time after which a job is given up."""
        return duration_seconds(self.default_job_ttl) or 300.0
