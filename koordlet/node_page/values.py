"""What the node page shows: a value that is made after a tick, and rendered in the thread of a request."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from api.pages.markup import Markup
from api.verdicts import Verdict
from api.window import Window
from koordlet.response.steps import ResponseStep
from koordlet.serving.status import AgentStatus


@dataclass(frozen=True, slots=True)
class Span:
    """Life of one verdict on the timeline."""

    opened: float
    """Wall-clock seconds."""
    closed: float | None
    """None while it is open."""
    last: Verdict
    worst: float
    """Highest loss that it stated, in seconds per second."""


@dataclass(frozen=True, slots=True)
class SettingInEffect:
    """One value that the agent set, and what it was before."""

    target: str
    knob: str
    value: str
    original: str
    """As it was found; empty where that is not known."""
    strategy: str
    verdict: str
    """`victim|rule` that it answers; empty for protocol state and strategies."""
    reason: str
    protocol_state: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of the audit."""

    time: str
    outcome: str
    target: str
    qos: str
    """Class of the target and its priority, as the audit states them; empty where not known."""
    knob_or_file: str
    before: str
    after: str
    reason: str
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Section:
    """A further part of the page, such as evidence of another kind; the body is markup of `markup.py`."""

    identity: str
    """Letters and dashes: the anchor of the section."""
    title: str
    body: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """The node at the newest tick."""

    status: AgentStatus
    mode: str
    """`observing`, `dry run` or `acting`."""
    stopped: str = ""
    """Why nothing may be done at present; empty otherwise."""
    now: float
    """Wall-clock seconds of the tick."""
    window: Window | None = None
    open_verdicts: tuple[Verdict, ...] = ()
    spans: tuple[Span, ...] = ()
    """Oldest first, open ones included."""
    steps: tuple[tuple[float, ResponseStep], ...] = ()
    """Newest steps of the response with their wall-clock seconds, oldest first."""
    settings: tuple[SettingInEffect, ...] = ()
    decisions: tuple[Decision, ...] = ()
    """Oldest first."""
    lost_events: Mapping[str, int] = field(default_factory=dict)
    name_of: Callable[[str], str] = str
    """Display name of a cgroup's path."""
    evidence: Callable[[], tuple[Section, ...]] = tuple
    """Sections of evidence, made when the page is asked for: flame graphs of verdicts."""
