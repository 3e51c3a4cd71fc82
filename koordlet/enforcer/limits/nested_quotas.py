"""Quotas below a quota.

Cgroup v1 refuses a quota while a cgroup below has a larger one (tg_cfs_schedulable() in kernel/sched/core.c), which v2
takes as bounded by it. So what is below is brought within the quota above it, for as long as there is one. Both are
granted together or not at all: a quota that is refused bounds nothing below it, and one that cannot be had below makes
the one above it impossible.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from api.cgroup_path import ancestors
from api.frame import CgroupInfo
from api.intents import Knob, Setting
from api.plugin import Unsupported
from koordlet.enforcer.conflicts import Owner
from koordlet.enforcer.leases import Lease
from koordlet.host.knobs.current import current
from koordlet.host.knobs.knobs import CgroupGone, Knobs
from koordlet.host.knobs.values import quota_cpus

_UNLIMITED = ("-1", "max")


class NestedQuotas:
    """Finds the settings that the quotas of a step need besides."""

    def __init__(self, knobs: Knobs) -> None:
        self._knobs = knobs
        self._own: dict[str, float] = {}
        """CPUs by a cgroup's own quota, while one above it has one; each is read once."""
        self._above: dict[str, str] = {}
        """Cgroup that gets a quota for one above it, and that one, in this step."""

    def settings(
        self,
        asked: Sequence[Setting],
        cgroups: Iterable[CgroupInfo],
        active: Mapping[Owner, Lease],
        backoff_reason: Callable[[Owner], str],
    ) -> list[Setting]:
        """Return a quota for each cgroup that has, or shall have, more than an action gives a cgroup above it.

        Until the step has found out what is granted (`not_together`), these are as much asked for as those above. An
        action that is not in effect and is not written at present, for a `backoff_reason`, needs none.
        """
        self._above = {}
        quotas = {one.target: one for one in asked if one.knob == Knob.CPU_MAX and math.isfinite(_cpus(one))}
        actions = {
            path: one
            for path, one in quotas.items()
            if not one.protocol_state
            and (_is_action(active.get((path, Knob.CPU_MAX))) or not backoff_reason((path, Knob.CPU_MAX)))
        }
        if not actions or not self._knobs.is_v1("cpu"):
            self._own.clear()
            return []
        found = []
        for info in cgroups:
            above = [actions[path] for path in ancestors(info.path) if path in actions]
            if not above:
                continue
            least = min(above, key=_cpus)
            own = quotas.get(info.path)
            cpus = _cpus(own) if own is not None else self._cpus_of(info.path, active)
            if math.isfinite(cpus) and cpus > _cpus(least):
                reason = f"cgroup v1 lets it have no more than {least.target}"
                self._above[info.path] = least.target
                found.append(msgspec.structs.replace(least, target=info.path, reason=reason))
        return found

    def not_together(self, granted: Collection[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return the quotas that may not be written although they are `granted`, with the reasons, by path: those that
        lack one below, and those below them. What is urgent is decided amid a step, and changes nothing here.
        """
        lacking: dict[str, str] = {}
        for path, above in self._above.items():
            if path not in granted and above in granted:
                lacking[above] = f"cgroup v1 needs a quota of {path} for it, which is not granted"
        dependent = {
            path: f"the quota of {above} is not granted"
            for path, above in self._above.items()
            if path in granted and (above not in granted or above in lacking)
        }
        return lacking, dependent

    def _cpus_of(self, path: str, active: Mapping[Owner, Lease]) -> float:
        """CPUs by the cgroup's quota without ours; infinite without one."""
        if path not in self._own:
            lease = active.get((path, Knob.CPU_MAX))
            entries = {} if lease is None else lease.entries
            texts = {each.attribute.key.rpartition("/")[2]: each.original for each in entries.values()}
            original = texts.get("cpu.cfs_quota_us", "")
            try:
                text = original or current(self._knobs, Knob.CPU_MAX, path)
                self._own[path] = math.inf if text in _UNLIMITED else quota_cpus(text)
            except (Unsupported, CgroupGone, OSError, ValueError):
                self._own[path] = math.inf
        return self._own[path]


def _is_action(lease: Lease | None) -> bool:
    return lease is not None and not lease.setting.protocol_state


def _cpus(setting: Setting) -> float:
    try:
        return quota_cpus(setting.value)
    except ValueError:  # it will be refused
        return math.inf
