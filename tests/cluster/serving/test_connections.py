"""Which connection is closed when there are too many, and when one is late."""

import pytest

from cluster.serving.connections import Bounds, Connection, Connections, network_of


class Ended:
    """Notes that it was ended."""

    def __init__(self) -> None:
        self.ended = False

    def end(self) -> None:
        self.ended = True


class Table:
    """Connections with a clock of their own."""

    def __init__(self, connections: int = 4, by_address: int = 3) -> None:
        self.now = 0.0
        self.bounds = Bounds(connections=connections, connections_by_address=by_address)
        self.connections = Connections(self.bounds, lambda: self.now)

    def open(self, address: str) -> Connection | None:
        self.now += 1
        return self.connections.admit(address, Ended())

    def admit(self, address: str) -> Connection:
        found = self.open(address)
        assert found is not None
        return found


def ended(connection: Connection) -> bool:
    assert isinstance(connection.socket, Ended)
    return connection.socket.ended


def test_an_address_beyond_its_share_loses_its_own_idlest() -> None:
    table = Table()
    other = table.admit("10.0.0.9")
    first, second, third = (table.admit("10.0.0.1") for _ in range(3))
    table.connections.sending(first)
    fourth = table.admit("10.0.0.1")
    assert [ended(each) for each in (other, first, second, third, fourth)] == [False, False, True, False, False]
    assert (len(table.connections), table.connections.dropped, table.connections.refused) == (4, 1, 0)


def test_a_full_listener_takes_from_the_one_with_most_connections() -> None:
    table = Table()
    oldest = table.admit("10.0.0.9")
    many = [table.admit("10.0.0.1") for _ in range(3)]
    table.admit("10.0.0.2")
    assert not ended(oldest)
    assert [ended(each) for each in many] == [True, False, False]


def test_what_is_being_answered_is_never_closed_for_another() -> None:
    table = Table()
    for _ in range(3):
        table.connections.answering(table.admit("10.0.0.1"))
    assert table.open("10.0.0.1") is None
    assert table.connections.refused == 1
    last = table.admit("10.0.0.2")
    table.admit("10.0.0.3")
    assert ended(last)


def test_each_step_of_a_request_has_its_time() -> None:
    table = Table()
    connection = table.admit("10.0.0.1")

    def late_after(seconds: float) -> bool:
        table.now += seconds
        return bool(table.connections.late())

    request, idle = table.bounds.request_seconds, table.bounds.idle_seconds
    assert not late_after(request - 0.1)
    assert late_after(0.2)
    table.connections.idle(connection)
    assert not late_after(idle - 0.1)
    assert late_after(0.2)
    table.connections.reading(connection)
    assert late_after(request)
    table.connections.answering(connection)
    assert not late_after(1e9)
    table.connections.sending(connection)
    assert late_after(request)
    table.connections.remove(connection)
    assert not table.connections.late()


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("nonsense", "nonsense"),
    ],
)
def test_connections_are_counted_by_network(address: str, network: str) -> None:
    assert network_of(address) == network
