"""OOM score by class, and as pods ask for it by annotation: the order in which the kernel kills for memory.

Best-effort work first, as in Bilibili's co-location; the annotations are Koordinator's.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, field

from api.intents import Intent, Knob, Strength
from api.protocol import ANNOTATION_OOM_SCORE_ADJ, ANNOTATION_OOM_SCORE_ADJ_SPEC
from api.qos import QoSClass
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import Group, NodeView

Score = Annotated[int, Meta(ge=-1000, le=1000)]


class OomScoreSettings(StrategySettings, frozen=True):
    """extensions.oomScore: oom_score_adj by class; an unset class keeps the kubelet's."""

    enable: bool = False
    be: Score | None = field(default=1000, name="BE")
    ls: Score | None = field(default=None, name="LS")


class OomScore(Strategy[OomScoreSettings]):
    """OOM scores of the processes of containers; of protected pods only where their own annotation asks for it.

    Reads: classes
    Intents: `oom_score_adj`
    Pods: annotations
    Default: off, BE 1000
    Source: Bilibili; annotations Koordinator
    """

    section: ClassVar[str] = "extensions.oomScore"
    features: ClassVar[Mapping[str, bool]] = {"OOMScoreAdj": False}
    settings_type = OomScoreSettings
    is_protocol_state: ClassVar[bool] = True
    example: ClassVar[Mapping[str, Any]] = {"enable": True, "LS": -100}

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return the same on every tick in which pods and settings stay."""
        return [intent for pod in view.pods if pod.active for intent in self._of_pod(view, pod)]

    def _of_pod(self, view: NodeView, pod: Group) -> Iterator[Intent]:
        asked = self._asked(pod) if self.gates["OOMScoreAdj"] else {}
        of_class = {QoSClass.BE: self.settings.be, QoSClass.LS: self.settings.ls}.get(pod.effective_qos)
        if pod.protected or not self.settings.enable:
            of_class = None
        for container in view.containers(pod):
            score = asked.get(container.name, asked.get("", of_class))
            if container.active and score is not None:
                reason = f"{score} of 1000 in the kernel's choice of a process to kill"
                yield self.set_knob(container.path, Knob.OOM_SCORE_ADJ, str(score), reason, Strength.INVISIBLE)

    def _asked(self, pod: Group) -> dict[str, int]:
        """Return the scores that the pod asks for by container, under the empty name for all others, and note unusable
        ones."""
        asked: dict[str, int] = {}
        for key, kind in ((ANNOTATION_OOM_SCORE_ADJ, Score), (ANNOTATION_OOM_SCORE_ADJ_SPEC, dict[str, Score])):
            text = pod.annotations.get(key)
            try:
                found: Any = {} if text is None else msgspec.json.decode(text, type=kind)
            except (ValueError, RecursionError) as error:
                self.problems[pod.path] = f"{pod.name}: {key}: {error}; write whole numbers from -1000 to 1000"
                continue
            asked |= found if isinstance(found, dict) else {"": found}
        return asked
