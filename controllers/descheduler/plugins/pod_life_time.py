"""Moves pods that are older than an age."""

from typing import Annotated, ClassVar

import msgspec

from controllers.descheduler.container_states import reasons
from controllers.descheduler.plugin import Plugin, PluginArgs, Point, Session


class PodLifeTimeArgs(PluginArgs, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Arguments, as upstream's."""

    max_pod_life_time_seconds: Annotated[int, msgspec.Meta(ge=1)]
    states: list[str] = []
    """Phases, or reasons of pods and containers; empty means any."""
    including_init_containers: bool = False


class PodLifeTime(Plugin[PodLifeTimeArgs]):
    """The oldest first."""

    name = "PodLifeTime"
    point = Point.DESCHEDULE
    args_type: ClassVar[type[PluginArgs]] = PodLifeTimeArgs

    def run(self, session: Session) -> None:
        """Move each pod that is older."""
        states = set(self.args.states)
        for pod in sorted(session.pods, key=session.age_seconds, reverse=True):
            age = session.age_seconds(pod)
            if age <= self.args.max_pod_life_time_seconds:
                return
            if not states or reasons(pod, init=self.args.including_init_containers) & states:
                session.evict(pod, f"it is {age:.0f} s old, more than {self.args.max_pod_life_time_seconds} s")
