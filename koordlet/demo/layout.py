"""Layouts of the stage's cgroups: two siblings, or two pods as the kubelet places them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

_POD = "pod5eb0c2f4-0000-4000-8000-0000000000"
_WEB = f"/kubepods/burstable/{_POD}01"
_BURSTABLE_JOB = f"/kubepods/burstable/{_POD}02"
_BEST_EFFORT_JOB = f"/kubepods/besteffort/{_POD}02"


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of the service and of the best-effort work, and the shares above them."""

    name: str
    root: str
    """Directory that holds all others; made and removed with them."""
    online: str
    batch: str
    batch_lever: str
    """Cgroup whose weight decides between the two: the ancestor of the best-effort work that competes with the
    service's."""
    shares: Mapping[str, int] = field(default_factory=dict)
    """cpu.shares by path, as the kubelet writes them; 1024 elsewhere."""

    @property
    def classed(self) -> tuple[str, str]:
        """Outermost cgroups of the service and of the best-effort work alone: a pod has one class."""
        online, batch = (leaf.rpartition("/")[0] for leaf in (self.online, self.batch))
        return (self.online, self.batch) if online == batch else (online, batch)

    @property
    def paths(self) -> tuple[str, ...]:
        """All of its cgroups, leaves first."""
        found = {self.root}
        for leaf in (self.online, self.batch):
            while leaf != self.root:
                found.add(leaf)
                leaf = leaf.rpartition("/")[0]
        return tuple(sorted(found, key=len, reverse=True))


SIBLINGS = Layout("siblings", "/koord-demo", "/koord-demo/online", "/koord-demo/batch", "/koord-demo/batch")
PODS = Layout("pods", "/kubepods", f"{_WEB}/{'a' * 64}", f"{_BURSTABLE_JOB}/{'b' * 64}", _BURSTABLE_JOB)
"""Two pods of the Burstable class with equal requests."""
BEST_EFFORT_POD = Layout(
    "best-effort-pod",
    "/kubepods",
    f"{_WEB}/{'a' * 64}",
    f"{_BEST_EFFORT_JOB}/{'b' * 64}",
    "/kubepods/besteffort",
    {"/kubepods/besteffort": 2, _BEST_EFFORT_JOB: 2, f"{_BEST_EFFORT_JOB}/{'b' * 64}": 2},
)
"""A Burstable pod beside one of the BestEffort class: the kubelet gives that class 2 shares."""

LAYOUTS = {layout.name: layout for layout in (SIBLINGS, PODS, BEST_EFFORT_POD)}
