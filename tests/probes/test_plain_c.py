"""The plain C that both kinds of BPF programs include, compiled for this machine and held against Python models."""

import math
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.frame import KERNEL_ID, OTHER_ID
from api.histogram import slot_of
from api.metrics import WAIT_CAUSES
from probes.blockio import SEATS
from probes.build import PLAIN_C, clang
from probes.cpu import EPOCH_SHARES, EPOCHS, RING

DRIVER = Path(__file__).with_name("plain_c.c")
VICTIM = 1
START = 1000
IDLE_ID, UNSEEN_ID = 0, OTHER_ID - 1
REACHABLE_SLICES = RING - 1
EPOCH_NS = 8_000_000
STALE_SECONDS = 30

Run = Callable[[str, str], list[list[str]]]
"""Takes a command of the driver and its input; returns the words of each line it prints."""


def compiled(binary: Path, *flags: str) -> Run:
    warnings = ("-Wall", "-Werror", "-Wno-unused-function")
    subprocess.run([clang(), "-O1", *warnings, *flags, f"-I{PLAIN_C}", str(DRIVER), "-o", str(binary)], check=True)

    def run(command: str, numbers: str) -> list[list[str]]:
        done = subprocess.run([binary, command], input=numbers, capture_output=True, text=True, check=True)
        return [line.split() for line in done.stdout.splitlines()]

    return run


@pytest.fixture(scope="module")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return compiled(tmp_path_factory.mktemp("plain_c") / "cpu")


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return compiled(tmp_path_factory.mktemp("plain_c") / "disk", "-DDISK")


def blame_of(lines: list[list[str]]) -> Counter[int]:
    """Nanoseconds by culprit; every line must be of the victim."""
    blame: Counter[int] = Counter()
    for _, victim, culprit, ns in (words for words in lines if words[0] == "blame"):
        assert int(victim) == VICTIM
        blame[int(culprit)] += int(ns)
    return blame


def test_log2_slot_is_that_of_python(cpu: Run) -> None:
    edges = [edge + offset for bit in range(64) for edge in [1 << bit] for offset in (-1, 0, 1)]
    durations = [*range(5000), *range(0, 1 << 36, (1 << 36) // 5003), *edges, (1 << 64) - 1]
    slots = [int(words[0]) for words in cpu("slots", "\n".join(map(str, durations)))]
    assert slots == [slot_of(duration) for duration in durations]


Slice = tuple[int, int, int]
"""Begin and end of a run slice, and the identity that ran."""


def ring(start: int, slices: list[tuple[int, int]]) -> list[Slice]:
    """The slices that a ring still knows, from pairs of identity and length; the same identity goes on."""
    known: list[Slice] = []
    begin = start
    for identity, length in slices:
        if known and known[-1][2] == identity:
            known[-1] = (known[-1][0], begin + length, identity)
        else:
            known.append((begin, begin + length, identity))
        begin += length
    return known[-REACHABLE_SLICES:]


def expected(slices: list[Slice], begin: int, end: int) -> tuple[dict[str, int], Counter[int]]:
    """Causes and blame of a wait by overlap."""
    causes = dict.fromkeys(WAIT_CAUSES, 0)
    blame: Counter[int] = Counter()
    for since, until, identity in slices:
        overlap = min(until, end) - max(since, begin)
        if overlap <= 0 or identity == UNSEEN_ID:
            continue
        special = {VICTIM: "self", IDLE_ID: "idle", KERNEL_ID: "kernel"}
        causes[special.get(identity, "neighbour")] += overlap
        if identity not in (VICTIM, IDLE_ID):
            blame[identity] += overlap
    causes["unknown"] = end - begin - sum(causes.values())
    return causes, blame


IDENTITIES = st.sampled_from([VICTIM, IDLE_ID, KERNEL_ID, UNSEEN_ID, 2, 3, 10, 11])


EDGES = st.tuples(st.integers(0, 2 * RING), st.integers(-2, 2))
"""A slice, counted back from the last one, and a distance from its end."""


def charged(
    cpu: Run, slices: list[tuple[int, int]], running: int, begin: int, end: int
) -> tuple[dict[str, int], Counter[int]]:
    """Return causes and blame of a wait from the C code."""
    lines = lines_of(cpu, slices, running, begin, end)
    return {WAIT_CAUSES[int(w[1])]: int(w[2]) for w in lines if w[0] == "cause"}, blame_of(lines)


def lines_of(
    cpu: Run, slices: list[tuple[int, int]], running: int, begin: int, end: int, command: str = "charge"
) -> list[list[str]]:
    until, pushed = START, []
    for identity, length in slices:
        until += length
        pushed += [identity, until]
    return cpu(command, " ".join(map(str, [VICTIM, begin, end, START, running, len(slices), *pushed])))


@settings(max_examples=300)
@given(
    slices=st.lists(st.tuples(IDENTITIES, st.integers(0, 6)), min_size=1, max_size=12),
    running=IDENTITIES,
    edges=st.tuples(EDGES, EDGES),
    ends_with_slice=st.booleans(),
)
def test_wait_is_charged_by_overlap(
    cpu: Run,
    slices: list[tuple[int, int]],
    running: int,
    edges: tuple[tuple[int, int], tuple[int, int]],
    ends_with_slice: bool,
) -> None:
    ends = [START + sum(length for _, length in slices[:count]) for count in range(len(slices), -1, -1)]
    begin, end = sorted(ends[back % len(ends)] + offset for back, offset in edges)
    if ends_with_slice:
        begin, end = min(begin, ends[0]), ends[0]
    known = [*ring(START, slices), (ends[0], max(end, ends[0]), running)]
    assert charged(cpu, slices, running, begin, end) == expected(known, begin, end)


def long_ago(slices: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The slices, and after them as many short ones as push them out of the ring."""
    return [*slices, *((90 + index % 2, 1) for index in range(REACHABLE_SLICES))]


def test_wait_before_the_first_slice_is_of_unknown_cause(cpu: Run) -> None:
    slices = long_ago([(2 + index % 2, 10) for index in range(10)])
    end = START + sum(length for _, length in slices)
    causes, blame = charged(cpu, slices, IDLE_ID, START - 500, end)
    assert causes["neighbour"] == blame.total() == end - START
    assert causes["unknown"] == 500


def test_long_wait_among_short_slices_finds_its_culprits(cpu: Run) -> None:
    pair = [(2, 12_000), (3, 8_000)]
    slices = pair * 1000
    end = START + 20_000 * 1000
    for wait in (20_000_000, 15_000_000, 5_000_000):
        causes, blame = charged(cpu, slices, IDLE_ID, end - wait, end)
        assert causes["unknown"] <= 0.001 * wait
        assert blame[2] == pytest.approx(0.6 * wait, rel=0.01)
        assert blame[3] == pytest.approx(0.4 * wait, rel=0.01)


def test_long_slice_among_short_ones_keeps_its_bounds(cpu: Run) -> None:
    before = [(2 + index % 2, 10_000) for index in range(200)]
    begins = START + sum(length for _, length in before)
    slices = long_ago([*before, (7, 30_000_000)])
    _, blame = charged(cpu, slices, IDLE_ID, begins + 1_000_000, begins + 25_000_000)
    assert blame == {7: 24_000_000}
    _, blame = charged(cpu, slices, IDLE_ID, begins - 1_000_000, begins + 1_000_000)
    assert blame[7] == 1_000_000
    assert blame[2] + blame[3] == pytest.approx(1_000_000, abs=2)


def test_an_epoch_knows_the_first_that_ran_and_the_longest_of_the_others(cpu: Run) -> None:
    first = [(10 + index, 1000) for index in range(EPOCH_SHARES)]
    late = [(50, 900), (51, 40_000), (52, 30_000)]
    slices = long_ago([*first, *late])
    end = START + sum(length for _, length in (*first, *late))
    causes, blame = charged(cpu, slices, IDLE_ID, START, end)
    assert blame == {**dict(first[:-1]), 51: 40_000}
    assert causes["unknown"] == 1000 + 900 + 30_000


@settings(max_examples=100)
@given(
    pattern=st.lists(
        st.tuples(st.sampled_from([VICTIM, IDLE_ID, UNSEEN_ID, KERNEL_ID, 2, 3]), st.integers(1, 3_000_000)),
        min_size=1,
        max_size=8,
    ),
    times=st.integers(1, 30),
)
def test_all_of_a_wait_within_the_epochs_is_charged(cpu: Run, pattern: list[tuple[int, int]], times: int) -> None:
    most = EPOCHS * EPOCH_NS // 2 // sum(length for _, length in pattern)
    slices = long_ago(pattern * min(times, most))
    end = START + sum(length for _, length in slices)
    every, begin = [], START
    for identity, length in slices:
        every.append((begin, begin + length, identity))
        begin += length
    assert charged(cpu, slices, IDLE_ID, START, end) == expected(every, START, end)


@pytest.mark.parametrize("begin", [pytest.param(START, id="beyond the ring"), pytest.param(START + 12_000, id="ring")])
@pytest.mark.parametrize(
    "slices",
    [
        pytest.param([(2, 12_000), (3, 8_000)], id="neighbours"),
        pytest.param([(IDLE_ID, 5_000), (VICTIM, 15_000)], id="idle and self"),
        pytest.param([(KERNEL_ID, 20_000)], id="kernel"),
    ],
)
def test_a_pass_charges_the_same_and_adds_atomically(cpu: Run, slices: list[tuple[int, int]], begin: int) -> None:
    """A switch on its CPU adds to the same sums: what comes between a read and a write would be lost."""
    ran, end = slices * 100, START + 20_000 * 100
    for until in (end, end + 1000):
        lines = lines_of(cpu, ran, IDLE_ID, begin, until, "pass")
        assert ["plain", "0"] in lines
        lines.remove(["plain", "0"])
        assert lines == lines_of(cpu, ran, IDLE_ID, begin, until)


@pytest.mark.parametrize("stride", [8, 16, 24, 64])
def test_culprits_whose_ids_differ_by_a_multiple_do_not_push_each_other_out(cpu: Run, stride: int) -> None:
    """Each directory takes as many ids as it has files."""
    slices = [(VICTIM + stride * (1 + index % 4), 10) for index in range(REACHABLE_SLICES)]
    end = START + 10 * len(slices)
    lines = lines_of(cpu, slices, IDLE_ID, START, end)
    assert blame_of(lines).total() == end - START
    assert sum(words[0] == "blame" for words in lines) <= len(slices) // 2


@pytest.mark.parametrize(
    ("identity", "cause"),
    [
        pytest.param(VICTIM, "self", id="self"),
        pytest.param(IDLE_ID, "idle", id="idle"),
        pytest.param(KERNEL_ID, "kernel", id="kernel"),
        pytest.param(UNSEEN_ID, "unknown", id="unseen"),
        pytest.param(7, "neighbour", id="neighbour"),
    ],
)
def test_wait_within_the_last_slice_has_one_cause(cpu: Run, identity: int, cause: str) -> None:
    causes, blame = charged(cpu, [(2, 10), (identity, 10)], 3, START + 10, START + 20)
    assert {name for name, ns in causes.items() if ns} == {cause}
    assert causes[cause] == 10
    assert blame == ({identity: 10} if cause in ("kernel", "neighbour") else {})


@pytest.mark.parametrize(
    ("ran", "known", "begin", "last"),
    [
        pytest.param(30, 1, 1070, (1070, UNSEEN_ID), id="after a task that was not seen to leave"),
        pytest.param(100, 1, 1000, (1000, UNSEEN_ID), id="right after the last switch"),
        pytest.param(0, 0, 1000, (1000, 7), id="the scheduler does not count it"),
        pytest.param(101, 0, 1000, (1000, 7), id="longer than the last switch is ago"),
    ],
)
def test_slice_that_began_unseen(cpu: Run, ran: int, known: int, begin: int, last: tuple[int, int]) -> None:
    (words,) = cpu("unseen", f"1000 {ran} 1100")
    assert tuple(map(int, words)) == (known, begin, UNSEEN_ID, *last)


def seat_counts(lines: list[list[str]]) -> list[tuple[int, list[int]]]:
    return [(int(seat), [int(count) for count in counts]) for seat, *counts in lines]


def test_each_cgroup_has_its_seat_until_all_are_taken(disk: Run) -> None:
    cgroups = [100 + index for index in range(SEATS + 2)]
    heavy, light = [f"+ {cgroup} 1 8" for cgroup in cgroups[:SEATS]], [f"+ {cgroup} 1 1" for cgroup in cgroups[SEATS:]]
    lines = seat_counts(disk("seats", "\n".join([*heavy, *light, f"+ {cgroups[0]} 1 1"])))
    seats = [seat for seat, _ in lines]
    assert sorted(seats[:SEATS]) == list(range(SEATS))
    assert seats[SEATS : SEATS + 2] == [SEATS, SEATS]
    assert seats[-1] == seats[0]
    counts = lines[-1][1]
    assert counts[SEATS] == 2
    assert counts[seats[0]] == 2
    assert sum(counts) == len(lines)


def test_a_flood_takes_the_lightest_seat_and_the_loser_counts_among_others(disk: Run) -> None:
    holders = [f"+ {100 + index} 1 {3 if index == 5 else 40}" for index in range(SEATS)]
    lines = seat_counts(disk("seats", "\n".join([*holders, "+ 900 2 64", "+ 105 2 1"])))
    taken, (flood, counts), (loser, after) = lines[5][0], lines[SEATS], lines[SEATS + 1]
    assert flood == taken
    assert (counts[taken], counts[SEATS], sum(counts)) == (1, 1, SEATS + 1)
    assert (loser, after[SEATS]) == (SEATS, 2)
    lines = seat_counts(disk("seats", "\n".join([*holders, "+ 900 2 64", f"- {taken} 3 1"])))
    assert [lines[-1][1][index] for index in (taken, SEATS)] == [1, 0]


def test_many_small_ones_wear_down_no_seat_in_use(disk: Run) -> None:
    moves = [f"+ {100 + index} 1 64" for index in range(SEATS)]
    for number in range(200):
        moves += [f"+ {1000 + number} 1 1", f"+ {100 + number % SEATS} 1 4"]
    lines = seat_counts(disk("seats", "\n".join(moves)))
    assert {seat for seat, _ in lines[SEATS::2]} == {SEATS}


def test_seat_is_free_again_when_nothing_is_outstanding(disk: Run) -> None:
    taken = seat_counts(disk("seats", "+ 100 1 1"))[0][0]
    lines = seat_counts(disk("seats", f"+ 100 1 1\n- {taken} 2 1\n+ {100 + SEATS} 3 1"))
    assert [seat for seat, _ in lines] == [taken, taken, taken]
    assert [counts[taken] for _, counts in lines] == [1, 0, 1]


@pytest.mark.parametrize(
    ("later", "left"),
    [
        pytest.param(STALE_SECONDS - 1, [1, 1], id="moved_lately"),
        pytest.param(STALE_SECONDS, [1, 0], id="stale"),
    ],
)
def test_count_that_does_not_move_is_mistaken(disk: Run, later: int, left: list[int]) -> None:
    seat = seat_counts(disk("seats", "+ 100 1 1"))[0][0]
    other = (seat + 1) % SEATS
    lines = seat_counts(disk("seats", f"+ 100 1 1\n+ {100 + other - seat} {1 + later} 1"))
    assert [counts[seat] for _, counts in lines] == left


def test_the_end_of_an_io_from_before_the_counts_began_is_not_counted(disk: Run) -> None:
    seat = seat_counts(disk("seats", "+ 100 2 1"))[0][0]
    lines = seat_counts(disk("seats", f"- {seat} 1 1\n+ 100 2 1\n- {seat} 3 1\n- {seat} 3 2"))
    assert [counts[seat] for _, counts in lines] == [0, 1, 1, 0]


def test_a_second_that_another_cpu_was_ahead_loses_no_count(disk: Run) -> None:
    seat = seat_counts(disk("seats", "+ 100 2 1"))[0][0]
    lines = seat_counts(disk("seats", f"+ 100 2 1\n+ 100 2 1\n+ 100 1 1\n- {seat} 2 2"))
    assert [counts[seat] for _, counts in lines] == [1, 2, 3, 2]


def excess_of(disk: Run, ios: list[tuple[int, int, int]], presumed_ns: int = 0) -> list[int]:
    lines = [str(presumed_ns), *(" ".join(map(str, io)) for io in ios)]
    return [int(words[0]) for words in disk("excess", "\n".join(lines))]


def lognormal(seed: int, spread: float) -> Callable[[], int]:
    draw = random.Random(seed)
    return lambda: int(draw.lognormvariate(math.log(90_000), spread))


@pytest.mark.parametrize("spread", [0.3, 0.5, 1.0])
@pytest.mark.parametrize("busy_ratio", [0.2, 0.5, 0.95])
def test_a_disk_that_is_slow_at_times_by_itself_has_no_excess(disk: Run, spread: float, busy_ratio: float) -> None:
    draw, other = lognormal(1, spread), random.Random(2)
    ios = [(int(other.random() < busy_ratio), draw(), number // 5000) for number in range(60_000)]
    assert sum(excess_of(disk, ios)) < 0.02 * sum(ns for _, ns, _ in ios)


def test_rare_long_pauses_of_the_disk_are_its_own(disk: Run) -> None:
    other = random.Random(3)
    ios = [
        (int(other.random() < 0.5), 10_000_000 if other.random() < 0.01 else 100_000, number // 5000)
        for number in range(60_000)
    ]
    assert sum(excess_of(disk, ios)) < 0.02 * sum(ns for _, ns, _ in ios)


@pytest.mark.parametrize("slower", [1.6, 3.0, 20.0])
def test_what_others_add_is_excess_within_a_second(disk: Run, slower: float) -> None:
    """200 IOs a second, alone for five seconds, then behind eight others."""
    draw = lognormal(4, 0.5)
    calm = [(0, draw(), number // 200) for number in range(1000)]
    harm = [(8, int(slower * draw()), 5 + number // 200) for number in range(2000)]
    found = excess_of(disk, [*calm, *harm])
    assert not any(found[: len(calm)])
    added = sum(ns for _, ns, _ in harm) * (1 - 1 / slower)
    assert sum(found) == pytest.approx(added, rel=0.25)
    assert sum(found[1000:1200]) > 0.4 * added / 10


def test_rare_but_very_long_waits_behind_others_are_excess(disk: Run) -> None:
    draw, other = lognormal(5, 0.5), random.Random(6)
    calm = [(0, draw(), number // 200) for number in range(1000)]
    harm = [(8, 20_000_000 if other.random() < 0.1 else draw(), 5 + number // 200) for number in range(2000)]
    added = sum(ns for _, ns, _ in harm) - 2000 * 102_000
    assert sum(excess_of(disk, [*calm, *harm])) == pytest.approx(added, rel=0.3)


def test_a_disk_that_was_never_less_busy_has_no_excess(disk: Run) -> None:
    draw = lognormal(7, 0.5)
    assert not any(excess_of(disk, [(16, draw(), number // 200) for number in range(2000)]))


@pytest.mark.parametrize("spread", [0.3, 0.5, 1.0])
def test_a_disk_of_which_little_is_known_yet_has_no_excess(disk: Run, spread: float) -> None:
    """A hundred first seconds of a disk with two users."""
    found = total = 0
    for seed in range(100):
        draw, other = lognormal(seed, spread), random.Random(seed)
        ios = [(int(other.random() < 0.7), draw(), 1) for _ in range(200)]
        found += sum(excess_of(disk, ios))
        total += sum(ns for _, ns, _ in ios)
    assert found < 0.02 * total


@pytest.mark.parametrize("calm", [6, 12])
def test_a_flood_is_seen_at_once_when_few_came_before_it(disk: Run, calm: int) -> None:
    draw = lognormal(8, 0.5)
    ios = [(0, draw(), 1) for _ in range(calm)] + [(16, 20 * draw(), 1) for _ in range(40)]
    found = excess_of(disk, ios)
    added = sum(ns for _, ns, _ in ios[calm:]) * 0.95
    assert sum(found[calm:]) == pytest.approx(added, rel=0.35)


def test_a_long_queue_needs_no_undisturbed_time_to_compare_with(disk: Run) -> None:
    """Of 16 IOs or more ahead at all times from the start, a wait of 70 ms in the queue is theirs, one of 1 ms may not
    be."""
    draw = random.Random(9)
    waits = [(16, int(draw.expovariate(1 / 70e6)), number // 60) for number in range(180)]
    assert sum(excess_of(disk, waits, presumed_ns=1_000_000)) == pytest.approx(sum(ns for _, ns, _ in waits), rel=0.15)
    short = [(16, int(draw.expovariate(1 / 1e6)), number // 60) for number in range(180)]
    assert sum(excess_of(disk, short, presumed_ns=1_000_000)) < 0.02 * sum(ns for _, ns, _ in short)


def test_undisturbed_times_count_more_than_presumed_ones(disk: Run) -> None:
    draw = lognormal(10, 0.3)
    slow = [(ahead, 50 * draw(), number // 60) for number, ahead in enumerate([0, 16] * 90)]
    assert sum(excess_of(disk, slow, presumed_ns=1_000_000)) < 0.02 * sum(ns for _, ns, _ in slow)


def test_the_least_busy_time_counts_for_an_hour(disk: Run) -> None:
    calm = [(0, 100_000, 1) for _ in range(100)]
    for later, known in ((3599, True), (3601, False)):
        found = excess_of(disk, [*calm, *((8, 1_000_000, later) for _ in range(100))])
        assert any(found) == known


def served(disk: Run, arrivals: list[tuple[int, int]], service: Callable[[int], int]) -> tuple[int, int, int]:
    """Serve IOs in the order of their arrival (nanosecond, cgroup); `service` gives how long from the begin of each.

    Returns the excess of all, how long they took, and how many found another ahead.
    """
    events, free_ns, took_ns = [], 0, 0
    for number, (now, cgroup) in enumerate(sorted(arrivals)):
        begin = max(now, free_ns)
        free_ns = begin + service(begin)
        events += [(now, 1, f"+ {cgroup} {now}"), (free_ns, 0, f"- {number} {free_ns}")]
        took_ns += free_ns - now
    lines = [words for words in disk("ios", "\n".join(line for *_, line in sorted(events))) if words[0] == "excess"]
    assert len(lines) == len(arrivals)
    return sum(int(words[1]) for words in lines), took_ns, sum(int(words[3]) for words in lines)


def poisson(seed: int, rate_hz: float, seconds: int, cgroup: int) -> list[tuple[int, int]]:
    draw, now, arrivals = random.Random(seed), 1.0, []
    while now < seconds:
        arrivals.append((int(now * 1e9), cgroup))
        now += draw.expovariate(rate_hz)
    return arrivals


@pytest.mark.parametrize("stall_ms", [150, 300, 800])
def test_a_stall_of_the_disk_is_no_doing_of_what_is_ahead(disk: Run, stall_ms: int) -> None:
    """Two cgroups with six IOs a second of 2 ms each; the disk serves nothing for a while every two seconds or so."""
    draw, stalls, now = random.Random(11), [], 2.0
    while now < 600:
        stalls.append((int(now * 1e9), int(now * 1e9) + stall_ms * 1_000_000))
        now += 1 + draw.expovariate(1.0) + stall_ms / 1000

    def service(begin: int) -> int:
        stalled = next((until - begin for since, until in stalls if since <= begin < until), 0)
        return stalled + int(draw.lognormvariate(math.log(2e6), 0.2))

    arrivals = poisson(12, 6.0, 600, 40) + poisson(13, 6.0, 600, 50)
    excess_ns, took_ns, behind = served(disk, arrivals, service)
    assert behind > 300
    assert excess_ns < 0.02 * took_ns


def test_what_others_add_on_a_disk_that_stalls_at_times_is_excess(disk: Run) -> None:
    """From the middle on, a burst of ten IOs just before every second one of the victim's; one IO in 200 stalls."""
    draw = random.Random(14)

    def service(begin: int) -> int:
        return (300_000_000 if draw.random() < 0.005 else 0) + int(draw.lognormvariate(math.log(2e6), 0.2))

    arrivals = poisson(15, 20.0, 120, 40)
    calm_excess_ns, calm_ns, _ = served(disk, arrivals, service)
    flood = [(now - 1000 * place, 50) for now, _ in arrivals[600::2] for place in range(1, 11)]
    excess_ns, took_ns, _ = served(disk, arrivals + flood, service)
    assert calm_excess_ns < 0.02 * calm_ns
    assert excess_ns > 0.3 * (took_ns - calm_ns)


@given(
    mine=st.integers(0, SEATS),
    length=st.integers(0, 1 << 30),
    counts=st.lists(st.integers(-2, 40), min_size=SEATS + 1, max_size=SEATS + 1),
    taken_late=st.lists(st.booleans(), min_size=SEATS, max_size=SEATS),
)
def test_io_wait_is_shared_by_what_is_outstanding(
    disk: Run, mine: int, length: int, counts: list[int], taken_late: list[bool]
) -> None:
    queued, now = 5_000_000_000, 6_000_000_000
    seats = [[count, 100 + i, queued + late] for i, (count, late) in enumerate(zip(counts, taken_late, strict=False))]
    numbers = [mine, length, queued, now, *(number for seat in seats for number in seat), counts[SEATS]]
    lines = disk("share", " ".join(map(str, numbers)))
    weights = [max(count, 0) for count in counts]
    mine = SEATS if mine < SEATS and taken_late[mine] else mine
    weights[mine] = max(weights[mine] - 1, 0)
    blame: Counter[int] = Counter()
    for seat, weight in enumerate(weights):
        if weight and seat != mine:
            known = seat < SEATS and not taken_late[seat]
            blame[100 + seat if known else OTHER_ID] += length * weight // sum(weights)
    assert blame_of(lines) == blame
    assert int(lines[-1][1]) == sum(blame.values()) <= length
