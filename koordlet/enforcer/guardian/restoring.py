"""What the guardian restores, imported when it comes to that."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from koordlet.config import EnforcerSettings
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.journal import JournalError, peek
from koordlet.enforcer.journal_format import Kind
from koordlet.enforcer.lifecycle import boot_id, restore
from koordlet.enforcer.rollback import roll_back
from koordlet.enforcer.writer import KernelWriter
from koordlet.host.files import HostTree


def restore_actions(given: Mapping[str, Any], *, beside: bool) -> bool:
    """Restore actions; return False where some could not be and it is worth trying again.

    `beside` an agent that lives the journal stays as it is: the agent finds the originals there and goes on from them.
    """
    settings = msgspec.convert(given["enforcer"], EnforcerSettings)
    tree = HostTree(Path(given["root"]))
    if beside:
        entries = peek(Path(settings.state_dir), boot_id(tree)).values()
        actions = [entry.without_action() for entry in entries if entry.kind is Kind.ACTION]
        return all(result.outcome is not Outcome.FAILED for result in roll_back(actions, KernelWriter()))
    try:
        events = restore(settings, tree)
    except JournalError:
        return True  # an agent has taken the journal over
    return all(event.outcome is not Outcome.FAILED for event in events)
