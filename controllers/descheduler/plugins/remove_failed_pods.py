"""Removes pods that failed, so that their workloads make others."""

from typing import ClassVar

from controllers.descheduler.container_states import exit_codes, reasons
from controllers.descheduler.plugin import Plugin, PluginArgs, Point, Session


class RemoveFailedPodsArgs(PluginArgs, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Arguments, as upstream's."""

    reasons: list[str] = []
    exit_codes: list[int] = []
    including_init_containers: bool = False
    exclude_owner_kinds: list[str] = []
    min_pod_lifetime_seconds: int | None = None
    node_fit: bool = False


class RemoveFailedPods(Plugin[RemoveFailedPodsArgs]):
    """Pods of phase Failed."""

    name = "RemoveFailedPods"
    point = Point.DESCHEDULE
    args_type: ClassVar[type[PluginArgs]] = RemoveFailedPodsArgs

    def run(self, session: Session) -> None:
        """Remove those that the arguments select."""
        args, chosen = self.args, {node.name for node in session.nodes}
        init = args.including_init_containers
        for pod in session.cluster.pods.values():
            if pod.status.phase != "Failed" or pod.spec.node_name not in chosen:
                continue
            owner = pod.metadata.controlled_by
            if owner is not None and owner.kind in args.exclude_owner_kinds:
                continue
            if args.min_pod_lifetime_seconds and session.age_seconds(pod) < args.min_pod_lifetime_seconds:
                continue
            found = reasons(pod, init=init) - {"Failed"}
            if args.reasons and not found & set(args.reasons):
                continue
            if args.exit_codes and not exit_codes(pod, init=init) & set(args.exit_codes):
                continue
            session.evict(pod, f"it failed: {', '.join(sorted(found)) or 'no reason given'}")
