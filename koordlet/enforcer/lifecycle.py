"""The enforcer, the only writer of the node agent: an agent's way in, and putting everything back after one that died.

    enforcer = open_enforcer(settings.enforcer, tree)
    events = enforcer.step(intents, cgroups)     # each tick, with everything that is wanted
    enforcer.close()                             # puts everything back

`docs/enforcer.md` has the rules.
"""

import logging
from pathlib import Path

from koordlet.config import EnforcerSettings
from koordlet.enforcer.enforcer import Enforcer
from koordlet.enforcer.events import Clocks, EnforcerEvent
from koordlet.enforcer.journal import Journal, NoJournal, peek
from koordlet.enforcer.writer import DryRunWriter, KernelWriter
from koordlet.host.cgroups.hierarchies import find_hierarchies
from koordlet.host.files import HostTree
from koordlet.host.knobs.knobs import Knobs
from koordlet.host.knobs.traffic import TrafficLink

_log = logging.getLogger(__name__)

__all__ = ["Enforcer", "boot_id", "open_enforcer", "open_knobs", "own_cgroup", "restore"]


def boot_id(tree: HostTree) -> str:
    """The kernel's id of this boot."""
    return (tree.text("/proc/sys/kernel/random/boot_id") or "unknown").strip()


def own_cgroup(tree: HostTree) -> str:
    """Path of this process in the cpu hierarchy; empty if it cannot be told."""
    is_v1 = find_hierarchies(tree).version == 1
    for line in (tree.text("/proc/self/cgroup") or "").splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(",") or (not is_v1 and hierarchy == "0"):
            return path
    return ""


def open_knobs(settings: EnforcerSettings, tree: HostTree) -> Knobs:
    """The host's knobs, with the link that the settings name."""
    return Knobs(tree, traffic=TrafficLink(settings.network_interface, settings.network_bits_per_second))


def open_enforcer(
    settings: EnforcerSettings, tree: HostTree, *, knobs: Knobs | None = None, now: Clocks | None = None
) -> "Enforcer":
    """Take over the journal, put back what an earlier run left, and be ready for the first step.

    Raises JournalError where the state directory cannot be used, Unsupported without a cpu hierarchy.
    """
    boot = boot_id(tree)
    hands: KernelWriter
    journal: Journal | NoJournal
    if settings.dry_run:
        left = peek(Path(settings.state_dir), boot)
        if left:
            _log.warning("an earlier run left %d places changed, and a dry run cannot: `koordlet restore`", len(left))
        hands, journal = DryRunWriter(), NoJournal(left.values())
    else:
        hands, journal = KernelWriter(), Journal(Path(settings.state_dir), boot)
    enforcer = Enforcer(settings, knobs or open_knobs(settings, tree), journal, hands=hands, own=own_cgroup(tree))
    enforcer.adopt(now)
    return enforcer


def restore(settings: EnforcerSettings, tree: HostTree) -> list[EnforcerEvent]:
    """Put back what the journal says is not as it was found; one event for each place. Raises as `open_enforcer`.

    Needs no settings but `state_dir` and the audit's, and no agent: it is for after one that was killed.
    """
    if not (Path(settings.state_dir) / "journal").exists():
        return []
    journal = Journal(Path(settings.state_dir), boot_id(tree))
    enforcer = Enforcer(settings, Knobs(tree), journal, hands=KernelWriter(), own=own_cgroup(tree))
    try:
        return enforcer.adopt()
    finally:
        enforcer.close()
