"""Stacks for the seconds after a verdict opens: one measurement at a time, in a thread beside the tick."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from threading import Event, Thread
from typing import Protocol

from api.cgroup_path import raw_path
from api.plugin import Unsupported
from api.stacks import StackEvidence, StackRole
from api.verdicts import VerdictState
from koordlet.evidence.plan import NamedStack, StackPlan, plan_of, series_of
from koordlet.evidence.sleepers import sleepers_below
from koordlet.evidence.symbolizer import Frame, Symbolizer
from koordlet.host.files import HostTree
from koordlet.host.scheduling import Breaks, let_others_first
from koordlet.tick import Tick
from probes.stacks import HZ, Role, Sample, SampleKind, Samples

_log = logging.getLogger(__name__)

CAPTURE_SECONDS = 2.0
PAUSE_SECONDS = 60.0
"""From one measurement to the next: the cost of one is spread over this time."""
NAMING_SECONDS = 20.0
"""For all names of a measurement."""
LOST_SECONDS = 30.0
"""After its end a measurement that still looks for names is given up: a file server hangs."""
MAX_LOST = 2
"""Threads that hang at a time: with so many of them no measurement begins."""
BREAK_SECONDS = 0.038
"""After each two milliseconds of a search for names on a node: 5 % of a CPU, less than a contention verdict takes."""
_LOOK_SECONDS = 0.2
"""Between looks for processes that may be gone at the end."""
_MAX_PENDING = 4
_OWN_FRAMES = ("bpf_prog_", "bpf_trace_run", "__bpf_trace_", "__traceiter_")
"""Innermost functions of a wait's stack: those that took it."""


class StackSource(Protocol):
    """The part of `probes.stacks.Stacks` that a measurement needs."""

    def begin(self, roles: Mapping[int, Role]) -> None:
        """Start. Raises Unsupported."""

    def tgids(self) -> frozenset[int]:
        """Processes seen so far."""

    def end(self) -> Samples:
        """Stop, and return what was seen."""


class StackTaker:
    """Measurements of one host, with names; used by one thread at a time."""

    def __init__(
        self, source: StackSource, tree: HostTree, cpu_mount: Path, new_breaks: Callable[[], Breaks] = Breaks
    ) -> None:
        """`cpu_mount` is where the cpu hierarchy is mounted; `new_breaks` makes the breaks of the search for names."""
        self._source, self._tree, self._mount = source, tree, cpu_mount
        self._new_breaks = new_breaks
        self._breaks = new_breaks()
        self._symbolizer = self._new_symbolizer()

    def start_anew(self) -> None:
        """Let the next measurement share nothing with one that hangs."""
        self._symbolizer = self._new_symbolizer()

    def take(
        self, plan: StackPlan, seconds: float, stop: Event, early: Callable[[StackEvidence], None] = lambda _: None
    ) -> StackEvidence:
        """Measure for some seconds, fewer if `stop` is set. Raises Unsupported, or OSError where the kernel refuses.

        Names come from files, which may hang as the victim does: `early` gets what is known without them, if anything.
        """
        started, self._breaks, symbolizer = time.thread_time(), self._new_breaks(), self._symbolizer
        try:
            samples = self._samples(plan, seconds, stop, symbolizer)

            def evidence(stacks: Sequence[NamedStack], notes: Iterable[str]) -> StackEvidence:
                return StackEvidence(
                    time=time.time(),
                    seconds=samples.seconds,
                    hz=HZ,
                    victim=plan.victim,
                    rule=plan.rule,
                    series=series_of(plan, stacks),
                    lost={place: count for place, count in samples.lost.items() if count},
                    notes=tuple(sorted(notes)),
                    cpu_seconds=time.thread_time() - started,
                )

            sleeping = self._sleeping(plan, samples)
            if sleeping:
                early(evidence(sleeping, ("only threads that slept all the time: a search for names hangs",)))
            symbolizer.name_for(NAMING_SECONDS)
            return evidence([*_named(symbolizer, samples.stacks), *sleeping], symbolizer.notes)
        finally:
            symbolizer.forget()

    def _new_symbolizer(self) -> Symbolizer:
        return Symbolizer(self._tree, lambda: self._breaks())

    def _samples(self, plan: StackPlan, seconds: float, stop: Event, symbolizer: Symbolizer) -> Samples:
        self._source.begin(plan.roles)
        deadline = time.monotonic() + seconds
        try:
            while (left := deadline - time.monotonic()) > 0 and not stop.wait(min(left, _LOOK_SECONDS)):
                symbolizer.remember(self._source.tgids())
        finally:
            samples = self._source.end()
        return samples

    def _sleeping(self, plan: StackPlan, samples: Samples) -> list[NamedStack]:
        """Threads of the victim that slept uninterruptibly from before the beginning to the end."""
        target = next((each for each in plan.targets if each.role is StackRole.VICTIM), None)
        if target is None:
            return []
        directory = self._mount / raw_path(target.path).lstrip("/")
        return sleepers_below(self._tree, directory, min(target.ids), samples)


def _named(symbolizer: Symbolizer, samples: Sequence[Sample]) -> list[NamedStack]:
    by_process: dict[int, list[Sample]] = {}
    for sample in samples:
        by_process.setdefault(sample.tgid, []).append(sample)
    symbolizer.remember(by_process)
    kernel = symbolizer.kernel_frames(address for sample in samples for address in _call_sites(sample.kernel))
    stacks = []
    for tgid, of_process in by_process.items():
        addresses = {address for sample in of_process for address in _call_sites(sample.user)}
        user = symbolizer.user_frames(tgid, addresses)
        name = symbolizer.name_of(tgid)
        stacks += [_stack(sample, name, user, kernel) for sample in of_process]
    return stacks


def _call_sites(addresses: Sequence[int]) -> list[int]:
    """The innermost address, and one byte before each return address, which lies in the call."""
    return [*addresses[:1], *(address - 1 for address in addresses[1:])]


def _stack(sample: Sample, name: str, user: Mapping[int, Frame], kernel: Mapping[int, Frame]) -> NamedStack:
    inner = [kernel[address] for address in _call_sites(sample.kernel)]
    if sample.kind is not SampleKind.ON_CPU:
        inner = list(dropwhile(lambda frame: frame.text.startswith(_OWN_FRAMES), inner))
    outer = [user[address] for address in _call_sites(sample.user)]
    frames = [frame.text for frame in (*reversed(outer), *reversed(inner))]
    return NamedStack(sample, (name, *frames), sum(not frame.is_named for frame in (*inner, *outer)))


@dataclass(slots=True)
class _Measurement:
    """One under way. `is_lost` when its end is not awaited any more."""

    plan: StackPlan
    started_ns: int
    thread: Thread | None = None
    early: StackEvidence | None = None
    is_lost: bool = False

    @property
    def is_alive(self) -> bool:
        return self.thread is not None and self.thread.is_alive()


class StackCapture:
    """Sink of ticks: takes stacks when a verdict opens, and hands them on in a later tick."""

    def __init__(
        self,
        taker: StackTaker,
        keep: Callable[[StackEvidence], None],
        *,
        seconds: float = CAPTURE_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        """`keep` is called in the thread of the tick."""
        self._taker, self._keep = taker, keep
        self._seconds, self._pause_ns = seconds, int(pause_seconds * 1e9)
        self._pending: deque[StackEvidence] = deque(maxlen=_MAX_PENDING)
        self._running: _Measurement | None = None
        self._lost: list[_Measurement] = []
        self._stop = Event()
        self._due_ns = 0
        self.taken = 0
        """Measurements handed on."""
        self.left_out = 0
        """Verdicts that opened while another measurement was under way or had just been."""
        self.lost = 0
        """Measurements that did not end in time."""

    def step(self, tick: Tick) -> None:
        """Hand on what was taken, and begin where a verdict opened; of several the one that loses most."""
        now_ns = tick.window.last.monotonic_ns
        self._give_up(now_ns)
        while self._pending:
            self._keep(self._pending.popleft())
            self.taken += 1
        opened = [verdict for verdict in tick.verdicts if verdict.state is VerdictState.OPEN]
        if not opened:
            return
        is_busy = (self._running is not None and self._running.is_alive) or len(self._lost) >= MAX_LOST
        if is_busy or now_ns < self._due_ns:
            self.left_out += len(opened)
            return
        worst = max(opened, key=lambda verdict: verdict.lost_seconds_per_second)
        self.left_out += len(opened) - 1
        self._due_ns = now_ns + self._pause_ns
        plan = plan_of(worst, tick.window.cgroups)
        if plan.targets:
            self._running = begun = _Measurement(plan, now_ns)
            begun.thread = Thread(target=self._run, args=(begun,), name="stacks", daemon=True)
            begun.thread.start()

    def close(self) -> None:
        """End a measurement that is under way; idempotent. What it saw is handed on."""
        self._stop.set()
        if self._running is not None and self._running.thread is not None:
            self._running.thread.join(timeout=self._seconds)
        while self._pending:
            self._keep(self._pending.popleft())

    def _give_up(self, now_ns: int) -> None:
        """Await a measurement no longer that is overdue, and hand on what it had so far."""
        self._lost = [each for each in self._lost if each.is_alive]
        overdue = self._running
        if overdue is None or not overdue.is_alive:
            return
        if now_ns - overdue.started_ns < (self._seconds + LOST_SECONDS) * 1e9:
            return
        overdue.is_lost = True
        self._lost.append(overdue)
        self._running = None
        self.lost += 1
        if overdue.early is not None:
            self._pending.append(overdue.early)
        self._taker.start_anew()
        _log.warning("stacks of %s are lost: a search for names hangs", overdue.plan.victim)

    def _run(self, measurement: _Measurement) -> None:
        let_others_first()
        plan = measurement.plan

        def keep_early(evidence: StackEvidence) -> None:
            measurement.early = evidence

        try:
            evidence = self._taker.take(plan, self._seconds, self._stop, keep_early)
            if not measurement.is_lost:
                self._pending.append(evidence)
        except (Unsupported, OSError, ValueError) as error:
            _log.warning("no stacks of %s: %s", plan.victim, error)
        except Exception:  # noqa: BLE001 - whatever a container makes of its files ends one measurement alone
            _log.exception("no stacks of %s", plan.victim)
