"""Clients of a program with a loop: what reads, what writes, and what records Events."""

from collections.abc import Callable
from typing import NamedTuple

from cluster import Client, ClientSettings, EventRecorder, RecorderSettings
from cluster.command_line import Chosen
from controllers.runtime.metrics import Metrics
from controllers.runtime.settings import LoopSettings


class Clients(NamedTuple):
    """Reads and writes have budgets of their own: a list of a large kind must not wait behind a thousand patches."""

    reader: Client
    writer: Client
    recorder: EventRecorder


def connect_clients(
    chosen: Chosen, instance: str, settings: LoopSettings, metrics: Metrics, leading: Callable[[], bool]
) -> Clients:
    """Connect to the chosen cluster as one instance of a program, which writes only while it leads."""
    reader = chosen.client(observe=metrics.requested)
    writer = chosen.client(
        ClientSettings(
            requests_per_second=settings.requests_per_second,
            burst=settings.burst,
            timeout_seconds=settings.request_timeout_seconds,
            attempts=1,
            user_agent=chosen.program,
        ),
        metrics.requested,
        may_write=leading,
    )
    told = chosen.client(
        ClientSettings(timeout_seconds=settings.request_timeout_seconds, user_agent=chosen.program),
        metrics.requested,
        may_write=leading,
    )
    return Clients(reader, writer, EventRecorder(told, RecorderSettings(chosen.program, instance)))
