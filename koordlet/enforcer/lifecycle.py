"""Life of an enforcer: opening it, and restoring the settings of an agent that died.

    enforcer = open_enforcer(settings.enforcer, tree)
    events = enforcer.step(intents, cgroups)     # each tick, with all intents
    enforcer.close()                             # restores actions; protocol state stays

`docs/enforcer.md` has the rules.
"""

import logging
import os
from collections import Counter
from pathlib import Path

from api.cgroup_path import ROOT, path_text
from api.plugin import Unsupported
from koordlet.config import EnforcerSettings
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.enforcer import Enforcer
from koordlet.enforcer.events import Clocks, EnforcerEvent
from koordlet.enforcer.guardian.restoring import WAIT_SECONDS, boot_id, left_by, restore_left
from koordlet.enforcer.journal import Journal, JournalError, NoJournal, peek
from koordlet.enforcer.journal_format import Kind
from koordlet.enforcer.writer import DryRunWriter, KernelWriter, Writer
from koordlet.host.cgroups.hierarchies import find_hierarchies
from koordlet.host.files import HostTree
from koordlet.host.knobs.knobs import Knobs
from koordlet.host.knobs.traffic import TrafficLink

_log = logging.getLogger(__name__)

__all__ = ["WAIT_SECONDS", "Enforcer", "boot_id", "open_enforcer", "open_knobs", "own_cgroup", "restore"]


def own_cgroup(tree: HostTree) -> str:
    """Path of this process in the cpu hierarchy; empty if it cannot be told."""
    is_v1 = find_hierarchies(tree).version == 1
    for line in (tree.text("/proc/self/cgroup") or "").splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(",") or (not is_v1 and hierarchy == "0"):
            return path_text(path) if path != ROOT else _cgroup_that_holds(os.getpid(), find_hierarchies(tree).cpu)
    return ""


def _cgroup_that_holds(pid: int, mount: Path) -> str:
    """Path of the cgroup below a mount that has a process: in a cgroup namespace of its own a container sees itself at
    the root, whatever the host's tree says."""
    for directory, _, _ in os.walk(mount):
        try:
            pids = (Path(directory) / "cgroup.procs").read_text().split()
        except OSError:
            continue  # gone meanwhile
        if str(pid) in pids:
            below = os.path.relpath(directory, mount)
            return ROOT if below == "." else path_text(f"/{below}")
    return ROOT


def open_knobs(settings: EnforcerSettings, tree: HostTree) -> Knobs:
    """The host's knobs, with the link that the settings name."""
    link = TrafficLink(
        settings.network_interface,
        settings.network_bits_per_second,
        is_allowed=settings.network_classes,
        may_police=settings.network_policing,
    )
    return Knobs(tree, traffic=link)


def open_enforcer(
    settings: EnforcerSettings,
    tree: HostTree,
    *,
    knobs: Knobs | None = None,
    journal: Journal | None = None,
    writer: Writer | None = None,
    now: Clocks | None = None,
) -> Enforcer:
    """Take over the journal and what an earlier run left (`Enforcer.adopt`), and be ready for the first step.

    `knobs`, `journal` and `writer` are those that the settings ask for, unless given. Raises JournalError where the
    state directory cannot be used, Unsupported without a cpu hierarchy.
    """
    boot = boot_id(tree)
    chosen: Journal | NoJournal
    if settings.dry_run:
        _restore_actions_left(settings, tree, boot)
        writer, chosen = writer or DryRunWriter(), NoJournal()
    else:
        writer, chosen = (
            writer or KernelWriter(),
            journal or Journal(Path(settings.state_dir), boot, wait_seconds=WAIT_SECONDS),
        )
    enforcer = Enforcer(settings, knobs or open_knobs(settings, tree), chosen, writer=writer, own=own_cgroup(tree))
    enforcer.adopt(now)
    return enforcer


def _restore_actions_left(settings: EnforcerSettings, tree: HostTree, boot: str) -> None:
    """Restore what an enforcing agent left to its successor, for a dry run adopts nothing.

    Where an agent runs, its actions are its own. What cannot be restored is logged, and the dry run goes on.
    """
    try:
        left = [entry for entry in peek(Path(settings.state_dir), boot).values() if entry.kind is Kind.ACTION]
    except OSError as error:
        _log.warning("whether an earlier run left anything changed cannot be told: %s", error)
        return
    if not left:
        return
    try:
        events = restore(settings, tree, wait_seconds=WAIT_SECONDS)
    except (JournalError, Unsupported) as error:
        _log.warning("an earlier run left %d attributes changed, which are left: %s", len(left), error)
        return
    outcomes = Counter(event.outcome for event in events)
    _log.warning(
        "an earlier run left actions in effect, and this one takes none over: %d restored, %d failed",
        outcomes[Outcome.RESTORED],
        outcomes[Outcome.FAILED],
    )
    if outcomes[Outcome.FAILED]:
        _log.error("run `koordlet restore` where the cgroup tree can be written")


def restore(
    settings: EnforcerSettings, tree: HostTree, *, everything: bool = False, wait_seconds: float = WAIT_SECONDS
) -> list[EnforcerEvent]:
    """As `restore_left`, where an agent of these settings leaves it."""
    return restore_left(left_by(settings), tree, everything=everything, wait_seconds=wait_seconds)
