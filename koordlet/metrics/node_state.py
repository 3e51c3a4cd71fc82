"""What the node page shows, kept from tick to tick: references only, so that a tick pays for no page."""

import platform
from collections.abc import Callable
from dataclasses import replace

from koordlet.agent.agent import Agent
from koordlet.config import AgentSettings
from koordlet.control.control_loop import ControlLoop
from koordlet.enforcer.audit import Line
from koordlet.node_page.history import VerdictHistory
from koordlet.node_page.values import Decision, NodeState, Section, SettingInEffect, Span
from koordlet.serving.status import AgentStatus, capabilities
from koordlet.tick import Tick
from koordlet.top.rows import RATE_SECONDS


class NodeStateKeeper:
    """Takes each tick in the loop's thread; `state` is made in the thread of a request."""

    def __init__(
        self,
        agent: Agent,
        control: ControlLoop,
        settings: AgentSettings,
        version: str,
        evidence: Callable[[], tuple[Section, ...]] = tuple,
    ) -> None:
        """`evidence` gives further sections when the page is asked for; its thread is the request's."""
        self._evidence = evidence
        self._agent = agent
        self._control = control
        self._mode = mode_of(settings)
        self._status = AgentStatus(
            settings.cluster.node_name or platform.node(), version, platform.release(), settings.interval_seconds, ()
        )
        self._history = VerdictHistory()
        self._newest: tuple[NodeState, tuple[Span, ...]] | None = None

    def update(self, tick: Tick) -> None:
        """Take a tick."""
        now = tick.window.last.wall_ns / 1e9
        self._history.update(tick.verdicts, tick.open_verdicts, now)
        status = replace(
            self._status, ticks=self._status.ticks + 1, last_tick_seconds=now, cgroups=len(tick.window.cgroups)
        )
        self._status = status
        state = NodeState(
            status=status,
            mode=self._mode,
            now=now,
            window=self._agent.store.window(RATE_SECONDS),
            open_verdicts=tick.open_verdicts,
            name_of=self._agent.title_of,
        )
        self._newest = state, self._history.spans()

    def state(self) -> NodeState | None:
        """Return what is known after the newest tick; None before the first."""
        if self._newest is None:
            return None
        state, spans = self._newest
        agent, control = self._agent, self._control
        known = capabilities(agent.capabilities(), agent.unsupported, agent.probes.partly)
        return replace(
            state,
            status=replace(state.status, capabilities=known),
            stopped=control.stop_reason_of(),
            spans=spans,
            steps=tuple(control.recent_steps),
            settings=tuple(
                SettingInEffect(
                    setting.target,
                    setting.knob.value,
                    setting.value,
                    ", ".join(originals),
                    setting.strategy,
                    setting.verdict,
                    setting.reason,
                    setting.protocol_state,
                )
                for setting, originals in control.in_effect()
            ),
            decisions=tuple(map(_decision, control.enforcer.recent)),
            lost_events=dict(agent.lost),
            evidence=self._evidence,
        )


def mode_of(settings: AgentSettings) -> str:
    """Return whether the agent acts: `acting`, `dry run` or `observing`."""
    if not settings.enforcer.enabled:
        return "observing"
    return "dry run" if settings.enforcer.dry_run else "acting"


def _decision(line: Line) -> Decision:
    return Decision(
        line.time,
        line.outcome.value,
        line.name or line.target,
        " ".join(filter(None, (line.qos, line.priority))),
        line.file,
        line.before,
        line.after,
        line.reason,
        line.dry_run,
    )
