"""Traffic classes as values: parsing, minor numbers, and the default interface."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.host.traffic.classes import (
    FIRST_MINOR,
    LAST_MINOR,
    Traffic,
    choose_minor,
    default_class_rate,
    default_interface,
    parse_traffic,
)

LINK_CLASS = 125_000_000
RATES = st.integers(1000, 1 << 40)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        pytest.param("rate=131072 prio=7", Traffic(131_072, LINK_CLASS, 7), id="without-a-ceiling-up-to-the-link"),
        pytest.param("rate=37500000 ceil=125000000 prio=2", Traffic(37_500_000, LINK_CLASS, 2), id="all-of-it"),
        pytest.param("prio=0  ceil=2000 rate=1000", Traffic(1000, 2000, 0), id="in-any-order"),
        pytest.param("rate=300000000 ceil=400000000 prio=1", Traffic(LINK_CLASS, LINK_CLASS, 1), id="cut-to-the-link"),
        pytest.param("rate=300000000 prio=1", Traffic(LINK_CLASS, LINK_CLASS, 1), id="a-promise-beyond-the-link"),
    ],
)
def test_a_value_is_parsed(text: str, meant: Traffic) -> None:
    assert parse_traffic(text, LINK_CLASS) == meant


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no rate"),
        ("rate=1000", "has no prio"),
        ("rate=0 prio=1", "rate 0 is not unlimited"),
        ("rate=1000 ceil=0 prio=1", "ceil 0 is not unlimited"),
        ("rate=00 prio=1", "rate 0 is not unlimited"),
        ("rate=999 prio=1", "not between 1000 and"),
        ("rate=-1 prio=1", "no whole number"),
        ("rate=1e6 prio=1", "no whole number"),
        ("rate=\u0661\u0660\u0660\u0660 prio=1", "no whole number"),
        ("rate=max prio=1", "no whole number"),
        ("rate=2000 ceil=1000 prio=1", "ceil 1000 is below rate 2000"),
        ("rate=9223372036854775808 prio=1", "not between"),
        ("rate=1000 prio=8", "prio 8 is not between 0 and 7"),
        ("rate=1000 rate=2000 prio=1", "is not `rate="),
        ("rate=1000 prio=1 burst=3", "is not `rate="),
        ("1", "is not `rate="),
    ],
)
def test_an_invalid_value_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_traffic(text, LINK_CLASS)


@given(rate=RATES, ceiling=RATES, priority=st.integers(0, 7), link=RATES)
def test_a_class_reads_back_as_it_is_spelled(rate: int, ceiling: int, priority: int, link: int) -> None:
    least, most = sorted((rate, ceiling))
    meant = parse_traffic(f"rate={least} ceil={most} prio={priority}", link)
    assert meant.rate <= meant.ceiling <= link
    assert parse_traffic(str(meant), link) == meant


@given(st.lists(st.text(min_size=1), unique=True, max_size=200))
def test_classes_are_the_same_each_time_and_never_shared(targets: list[str]) -> None:
    def choose_all() -> dict[str, int]:
        minors: dict[str, int] = {}
        for target in targets:
            minors[target] = choose_minor(target, set(minors.values()))
        return minors

    minors = choose_all()
    assert minors == choose_all()
    assert len(set(minors.values())) == len(targets)
    assert all(FIRST_MINOR <= minor <= LAST_MINOR for minor in minors.values())


def test_a_taken_class_goes_on_to_the_next_round_the_corner_too() -> None:
    everything = set(range(FIRST_MINOR, LAST_MINOR + 1))
    first = choose_minor("/pod", ())
    assert choose_minor("/pod", {first}) == (first + 1 if first < LAST_MINOR else FIRST_MINOR)
    assert choose_minor("/pod", everything - {FIRST_MINOR}) == FIRST_MINOR
    with pytest.raises(ValueError, match="all 65519 traffic classes"):
        choose_minor("/pod", everything)


@given(link=RATES, promised=st.lists(RATES))
def test_those_without_a_class_are_promised_what_is_left_and_a_tenth_at_least(link: int, promised: list[int]) -> None:
    left = default_class_rate(link, promised)
    assert left >= link // 10
    assert left == link - sum(promised) or left <= max(link // 10, 1000)


ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
{}
"""
ROUTES6 = "{destination} {prefix} 00000000000000000000000000000000 00 fe80 {metric} 1 0 3 {device}\n"


def route(device: str, destination: str, metric: int, mask: str) -> str:
    return f"{device}\t{destination}\t010200C0\t0003\t0\t0\t{metric}\t{mask}\t0\t0\t0"


@pytest.mark.parametrize(
    ("lines", "lines6", "device"),
    [
        pytest.param([], "", None, id="no-network"),
        pytest.param([route("eth0", "000200C0", 0, "00FFFFFF")], "", None, id="no-default"),
        pytest.param(
            [route("wan1", "00000000", 100, "00000000"), route("eth0", "00000000", 5, "00000000")],
            "",
            "eth0",
            id="lowest-metric",
        ),
        pytest.param([route("vpn0", "00000000", 0, "00000080")], "", None, id="half-of-the-world-is-no-default"),
        pytest.param(
            [],
            ROUTES6.format(destination="0" * 32, prefix="00", metric="ffffffff", device="lo")
            + ROUTES6.format(destination="0" * 32, prefix="00", metric="00000400", device="eth6"),
            "eth6",
            id="ipv6-alone",
        ),
    ],
)
def test_the_link_of_the_default_route(lines: list[str], lines6: str, device: str | None) -> None:
    assert default_interface(ROUTES.format("\n".join(lines)), lines6) == device
