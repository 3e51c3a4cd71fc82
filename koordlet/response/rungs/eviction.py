"""The last rung of most ladders."""

from api.intents import Evict, Intent, Strength
from koordlet.response.observation import Observation
from koordlet.response.rungs.rung import STRATEGY, Interference, Rung
from koordlet.response.settings import ResponseSettings


def _evict(_observation: Observation, interference: Interference, _settings: ResponseSettings) -> tuple[Intent, ...]:
    evict = Evict(
        strategy=STRATEGY,
        target=interference.culprit,
        reason=interference.reason,
        verdict=interference.verdict,
        strength=Strength.DRASTIC,
    )
    return (evict,)


EVICT = Rung("evict", Strength.DRASTIC, None, _evict, one_shot=True)
