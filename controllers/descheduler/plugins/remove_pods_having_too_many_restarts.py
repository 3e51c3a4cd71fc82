"""Moves pods whose containers restart again and again: another node may suit them."""

from typing import Annotated, ClassVar

import msgspec

from controllers.descheduler.container_states import reasons, restarts
from controllers.descheduler.plugin import Plugin, PluginArgs, Point, Session


class TooManyRestartsArgs(PluginArgs, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Arguments, as upstream's."""

    pod_restart_threshold: Annotated[int, msgspec.Meta(ge=1)]
    including_init_containers: bool = False
    states: list[str] = []


class RemovePodsHavingTooManyRestarts(Plugin[TooManyRestartsArgs]):
    """Restarts of all containers together."""

    name = "RemovePodsHavingTooManyRestarts"
    point = Point.DESCHEDULE
    args_type: ClassVar[type[PluginArgs]] = TooManyRestartsArgs

    def run(self, session: Session) -> None:
        """Move each pod at or above the threshold."""
        init = self.args.including_init_containers
        for pod in session.pods:
            count = restarts(pod, init=init)
            stated = not self.args.states or bool(reasons(pod, init=init) & set(self.args.states))
            if count >= self.args.pod_restart_threshold and stated:
                session.evict(pod, f"its containers restarted {count} times")
