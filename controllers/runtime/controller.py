"""A controller: the kinds it watches, and a plan from a view of the cluster to writes. One costs a module and its test.

A controller is a module in `controllers/plans/`, named by its file, with one concrete subclass of `Controller`; or an
entry point `koord.controllers` of an installed distribution. The runtime finds it, watches its kinds, calls `plan` when
one of them changed and every `period_seconds`, and carries out what it returns:

    class Cordons(Controller[CordonSettings]):
        '''Labels nodes that are cordoned.'''

        settings_type = CordonSettings
        watches = (NODE,)

        def plan(self, view: View, now: float) -> Writes:
            nodes = view.objects(NODE)
            return Writes([
                patch(NODE, nodes[key], {"metadata": {"labels": {"cordoned": "yes"}}}, "the node is cordoned")
                for key in view.due(NODE)
                if key in nodes and nodes[key].spec.unschedulable and "cordoned" not in nodes[key].metadata.labels
            ])

Rules: a plan depends on its arguments and the settings only. It returns differences: a state that is as wanted gives
no write. `view.due(kinds...)` are the objects that may need one; a write that was held back, refused or dropped makes
its object due again, so a controller watches the kinds that it writes. A plan over numbers of many nodes reads columns
(`view.of(Projection)`), not objects.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from cluster.resources import Key, Resource
from controllers.runtime.view import AnyProjection, View
from controllers.runtime.writes import Writes


class ControllerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of one controller: table `[controllers.NAME]`."""

    enabled: bool = True
    """Run this controller."""


S = TypeVar("S", bound=ControllerSettings)


class Controller(ABC, Generic[S]):
    """Base of all controllers. Instances hold settings and nothing else."""

    settings_type: ClassVar[type[ControllerSettings]] = ControllerSettings
    watches: ClassVar[tuple[Resource[Any], ...]] = ()
    """Kinds whose changes lead to a plan; `view.objects` has these and those of the projections."""
    projections: ClassVar[tuple[type[AnyProjection], ...]] = ()
    """Tables that `view.of` has."""
    period_seconds: ClassVar[float] = 300.0
    """Interval of plans over everything, for what depends on time and for changes that others made; jittered."""

    def __init__(self, settings: S, config_map: Key) -> None:
        self.settings = settings
        self.config_map = config_map
        """Key of the slo-controller ConfigMap."""

    @abstractmethod
    def plan(self, view: View, now: float) -> Writes:
        """Return the writes that bring the due objects into the wanted state; `now` in seconds since the epoch."""

    def explain(self, view: View, kind: str, key: Key, now: float) -> Sequence[str]:
        """Return lines that say why the object has the value that this controller gives it; empty if it gives none."""
        return ()


AnyController = Controller[Any]
