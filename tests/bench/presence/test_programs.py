"""What a request costs in BPF programs."""

from bench.presence.programs import Program, Programs, table


def test_what_programs_did_since_a_moment_counts_those_that_came_too() -> None:
    before = Programs({1: Program("on_switch", 1000, 10), 2: Program("on_send", 500, 5)})
    after = Programs(
        {1: Program("on_switch", 3000, 20), 2: Program("on_send", 500, 5), 3: Program("on_packet", 4000, 4)}
    )
    assert after.since(before) == [Program("on_packet", 4000, 4), Program("on_switch", 2000, 10)]


def test_the_table_is_of_one_request() -> None:
    lines = table([Program("on_switch", 30_000, 20), Program("on_state", 50, 0)], 10).splitlines()
    assert lines == ["  3.00 us in  2.00 runs a request", "  3.00 us in  2.00 runs of on_switch, 1500 ns each"]
