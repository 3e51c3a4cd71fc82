"""The DaemonSet that runs the agent: whether a rollout of it is under way, and its pods as restorers of their nodes."""

import copy
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster import DAEMON_SETS, ApiError, Client, ClientSettings, Conflict, Document, Key, NotFound
from cluster.config import load_endpoint

_log = logging.getLogger(__name__)

AGENT = "koordlet"
"""Name of the agent's container."""
RESTORER = "restore"
"""Name of the init container that restores."""
_ASK = ClientSettings(timeout_seconds=2.0, connect_seconds=1.0, attempts=1, patience_seconds=2.0)
_POLL_SECONDS = 2.0
_ATTEMPTS = 5
_ONLY_OF_AGENTS = ("livenessProbe", "readinessProbe", "startupProbe", "ports", "lifecycle")


def key_of(text: str) -> Key:
    """Return the key of `namespace/name`. Raises ValueError."""
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise ValueError(f"{text!r} is not namespace/name")
    return Key(namespace, name)


def is_under_way(daemon_set: Mapping[str, Any]) -> bool:
    """Return whether pods of an older template are being replaced, so that one that ends is followed by another.

    False for a DaemonSet that is being deleted, and for one whose pods the user replaces (OnDelete).
    """
    metadata, status = daemon_set.get("metadata") or {}, daemon_set.get("status") or {}
    strategy = (daemon_set.get("spec") or {}).get("updateStrategy") or {}
    if metadata.get("deletionTimestamp") or strategy.get("type") == "OnDelete":
        return False
    if status.get("observedGeneration", 0) < metadata.get("generation", 0):
        return True
    return bool(status.get("updatedNumberScheduled", 0) < status.get("desiredNumberScheduled", 0))


def enforces(daemon_set: Mapping[str, Any]) -> bool:
    """Return whether its pods would run an agent that enforces: no other adopts actions."""
    containers = daemon_set["spec"]["template"]["spec"].get("containers") or ()
    return any("--enforce" in (one.get("args") or ()) for one in containers if one.get("name") == AGENT)


def rollout_in_sight(key: Key, kubeconfig: str = "") -> bool:
    """Ask the API server whether the agent that ends is followed by one that adopts its actions.

    False without an answer within a few seconds. Never raises.
    """
    try:
        with Client(load_endpoint(kubeconfig=Path(kubeconfig) if kubeconfig else None, pool_size=1), _ASK) as client:
            found = client.get(DAEMON_SETS, key)
        return is_under_way(found) and enforces(found)
    except Exception as error:  # noqa: BLE001 - an end without an answer restores, whatever the reason
        _log.info("the DaemonSet %s/%s cannot be asked for a rollout: %s", key.namespace, key.name, error)
        return False


def restoring(daemon_set: Document) -> Document:
    """Return the DaemonSet whose pods restore everything on their nodes and then stay, in place of the agent."""
    changed: Document = copy.deepcopy(daemon_set)
    pod = changed["spec"]["template"]["spec"]
    (agent,) = (one for one in pod["containers"] if one["name"] == AGENT)
    config = _config_of(agent.get("args") or ())
    # An agent that only observes has one that may write, with what that needs.
    made = [one for one in pod.get("initContainers") or () if one["name"] == RESTORER]
    source = copy.deepcopy(made[0] if made else agent)
    restorer = {key: value for key, value in source.items() if key not in _ONLY_OF_AGENTS}
    command = [*(agent.get("command") or ["koordlet", "run"])[:-1], "restore"]
    restorer |= {"name": RESTORER, "command": command, "args": [*config, "--all", "--wait=90"]}
    for key in _ONLY_OF_AGENTS:
        agent.pop(key, None)
    # The image has no program that merely waits.
    agent |= {"command": list(command), "args": [*restorer["args"], "--stay"]}
    pod["initContainers"] = [restorer]
    changed["spec"]["minReadySeconds"] = 0
    changed["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}}
    return changed


def _config_of(args: Sequence[str]) -> list[str]:
    """Return the last `--config PATH`, as one argument, of a command's; the path may be an argument of its own."""
    found: list[str] = []
    for arg, following in zip(args, [*args[1:], ""], strict=True):
        if arg.startswith("--config="):
            found = [arg]
        elif arg == "--config" and following:
            found = [f"--config={following}"]
    return found


def waiting_nodes(daemon_set: Document) -> int | None:
    """Return the number of nodes whose pod has not restored; None while the controller has not seen the change."""
    metadata, status = daemon_set.get("metadata") or {}, daemon_set.get("status") or {}
    if status.get("observedGeneration", 0) < metadata.get("generation", 0):
        return None
    desired = int(status.get("desiredNumberScheduled", 0))
    updated, ready = int(status.get("updatedNumberScheduled", 0)), int(status.get("numberReady", 0))
    return max(desired - min(updated, ready), 0)


def restore_nodes(client: Client, key: Key, timeout_seconds: float) -> int | None:
    """Have every node of the DaemonSet restore everything; return how many have not when the time is over.

    None: there is no such DaemonSet. Raises ApiError.
    """
    for attempt in range(_ATTEMPTS):
        try:
            client.update(DAEMON_SETS, restoring(client.get(DAEMON_SETS, key)))
            break
        except NotFound:
            return None
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
    deadline = time.monotonic() + timeout_seconds
    waiting: int | None = None
    while time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        try:
            waiting = waiting_nodes(client.get(DAEMON_SETS, key))
        except ApiError as error:
            _log.warning("%s/%s: %s; asking again", key.namespace, key.name, error)
            continue
        if waiting == 0:
            return 0
    return -1 if waiting is None else waiting
