"""Host ports conflict by port, protocol and address."""

from typing import Any

import pytest

from scheduler.plugins.nodeports import NodePorts
from tests.schedobjects import engine, node, pod, rejected

KINDS = {"nodeports": NodePorts}
REASON = "node(s) didn't have free ports for the requested pod ports"


def with_port(name: str, port: int, address: str = "", protocol: str = "TCP", **fields: Any) -> Any:
    ports = [{"hostPort": port, "hostIP": address, "protocol": protocol}]
    return pod(name, container={"ports": ports}, **fields)


@pytest.mark.parametrize(
    ("held", "asked", "passes"),
    [
        pytest.param((80, "", "TCP"), (80, "", "TCP"), False, id="same"),
        pytest.param((80, "", "TCP"), (81, "", "TCP"), True, id="other-port"),
        pytest.param((80, "", "TCP"), (80, "", "UDP"), True, id="other-protocol"),
        pytest.param((80, "10.0.0.1", "TCP"), (80, "10.0.0.2", "TCP"), True, id="other-address"),
        pytest.param((80, "10.0.0.1", "TCP"), (80, "", "TCP"), False, id="every-address-takes-any"),
        pytest.param((80, "", "TCP"), (80, "10.0.0.1", "TCP"), False, id="any-is-taken-by-every"),
    ],
)
def test_conflicts(held: tuple[int, str, str], asked: tuple[int, str, str], passes: bool) -> None:
    made = engine([node("a"), node("b")], [with_port("x", *held, nodeName="a")], kinds=KINDS)
    assert rejected(made, with_port("p", *asked)) == {"a": [] if passes else [REASON], "b": []}


def test_a_port_is_free_again() -> None:
    made = engine([node("a")], [with_port("x", 80, nodeName="a")], kinds=KINDS)
    assert rejected(made, with_port("p", 80)) == {"a": [REASON]}
    made.snapshot.remove_pod("uid-x")
    assert rejected(made, with_port("p", 80)) == {"a": []}
