"""Moves pods from nodes whose resources are requested in unequal shares, which leaves rests that fit nothing."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import msgspec

from controllers.descheduler.cluster_view import allocatable, requested, requests
from controllers.descheduler.plugin import Plugin, PluginArgs, Point, Session


class FragmentationAwareArgs(PluginArgs, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Arguments, as Koordinator's."""

    resources: Annotated[tuple[str, ...], msgspec.Meta(min_length=2)] = ("cpu", "memory")
    imbalance_threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.15
    min_improvement_threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.02


class FragmentationAware(Plugin[FragmentationAwareArgs]):
    """One pod a node and cycle: the one without which the shares are most alike."""

    name = "FragmentationAware"
    point = Point.BALANCE
    args_type: ClassVar[type[PluginArgs]] = FragmentationAwareArgs

    def run(self, session: Session) -> None:
        """Move the pod with the largest improvement from each node above the threshold."""
        for node in session.nodes:
            have, pods = allocatable(node), session.cluster.pods_by_node.get(node.name, ())
            asked = requested(pods)
            before = imbalance(asked, have, self.args.resources)
            if before <= self.args.imbalance_threshold:
                continue
            gains = []
            for pod in session.in_order(pods):
                own = requests(pod)
                rest = {name: asked.get(name, 0) - own.get(name, 0) for name in self.args.resources}
                gains.append((before - imbalance(rest, have, self.args.resources), pod))
            for gain, pod in sorted(gains, key=lambda each: -each[0]):
                if gain <= self.args.min_improvement_threshold:
                    break
                if session.evict(
                    pod, f"shares of {node.name} differ by {before:.2f}, without it by {before - gain:.2f}"
                ):
                    break


def imbalance(asked: Mapping[str, int], have: Mapping[str, int], names: Sequence[str]) -> float:
    """Return the population standard deviation of the requested shares of a node."""
    shares = [asked.get(name, 0) / have[name] for name in names if have.get(name)]
    mean = sum(shares) / len(shares) if shares else 0.0
    return (sum((share - mean) ** 2 for share in shares) / len(shares)) ** 0.5 if shares else 0.0
