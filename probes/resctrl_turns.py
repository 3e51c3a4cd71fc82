"""Turns of cgroups at monitor ids, which are few: round robin where they do not suffice. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turns:
    """Cgroups to stop and to start monitoring, in that order."""

    stop: tuple[int, ...]
    start: tuple[int, ...]


def next_turns(
    now_seconds: float,
    wanted: Collection[int],
    *,
    serving: Mapping[int, float],
    rested: Sequence[int],
    room: int,
    turn_seconds: float,
) -> Turns:
    """Return the cgroups that stop and those that start being monitored.

    `serving` maps the monitored to since when, in the order they started; `rested` lists those who had a turn, longest
    ago first; `room` is how many can be monitored at once. A cgroup that never had a turn comes first, then the one
    that waits longest; none is stopped before `turn_seconds` unless gone or out of room.
    """
    gone = [cgroup for cgroup in serving if cgroup not in wanted]
    stay = [cgroup for cgroup in serving if cgroup in wanted]
    waiting = sorted(cgroup for cgroup in wanted if cgroup not in serving and cgroup not in rested)
    waiting += [cgroup for cgroup in rested if cgroup in wanted and cgroup not in serving]
    over = stay[: max(len(stay) - room, 0)]
    free = max(room - len(stay), 0)
    late = max(len(waiting) - free, 0)
    done = [cgroup for cgroup in stay[len(over) :] if serving[cgroup] <= now_seconds - turn_seconds][:late]
    return Turns((*gone, *over, *done), tuple(waiting[: free + len(done)]))
