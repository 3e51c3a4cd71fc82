"""Pods that need a feature of the kubelet go where the node declares it; rows as in the stock scheduler's table."""

from typing import Any

import msgspec
import pytest

from api.kube.objects import Node
from scheduler.framework import Action
from scheduler.plugins.nodedeclaredfeatures import NodeDeclaredFeatures
from tests.schedobjects import drain, engine, node, pod, rejected

RESTART, USERS = "RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"
AGAIN = {"container": {"restartPolicyRules": [{"action": "RestartAllContainers"}]}}
IN_INIT = {"initContainers": [{"name": "i", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]}
OWN_USERS = {"hostNetwork": True, "hostUsers": False}
REASON = ["node(s) didn't match Pod's required features"]


def declaring(name: str, *features: str) -> Node:
    plain = node(name)
    return msgspec.structs.replace(plain, status=msgspec.structs.replace(plain.status, declared_features=[*features]))


ROWS: list[tuple[dict[str, Any], tuple[str, ...], bool]] = [
    ({}, (), True),
    (AGAIN, (RESTART, USERS), True),
    (AGAIN, (USERS,), False),
    (AGAIN, (), False),
    (IN_INIT, (RESTART,), True),
    (IN_INIT, (), False),
    ({"container": {"restartPolicyRules": [{"action": "Restart"}]}}, (), True),
    (OWN_USERS, ("Other", USERS), True),
    (OWN_USERS, (RESTART,), False),
    ({"hostNetwork": True}, (), True),
    ({"hostUsers": False}, (), True),
    ({**AGAIN, **OWN_USERS}, (RESTART,), False),
    ({**AGAIN, **OWN_USERS}, (RESTART, USERS), True),
]


@pytest.mark.parametrize("row", range(len(ROWS)))
def test_nodes_must_declare_what_a_pod_needs(row: int) -> None:
    needs, declared, fits = ROWS[row]
    made = engine([declaring("n0", *declared)], kinds={"features": NodeDeclaredFeatures})
    assert rejected(made, pod("p", **needs)) == {"n0": [] if fits else REASON}


def test_a_node_that_declares_more_takes_pods_that_waited() -> None:
    made = engine([declaring("n0")], kinds={"features": NodeDeclaredFeatures})
    made.on_pod(Action.ADD, pod("p", **AGAIN), 0.0)
    assert drain(made) == {}
    made.on_node(Action.UPDATE, declaring("n0", RESTART), 5.0)
    assert drain(made, 5.0) == {"p": "n0"}
