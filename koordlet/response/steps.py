"""Steps on the ladder, as they are logged and counted, and what an enforcer's refusal reaches."""

from enum import StrEnum

import msgspec


class StepKind(StrEnum):
    """Kind of a step on the ladder."""

    APPLIED = "applied"
    KEPT = "kept"
    """A lift showed that the loss is higher without the rung."""
    REVERTED = "reverted"
    RELEASED = "released"
    LIFTED = "lifted"
    """Taken back for a tick or two, to see what it does."""
    REFUSED = "refused"
    """The enforcer did not set it."""


class Refused(StrEnum):
    """Reach of the enforcer's refusal of a setting."""

    FOR_NOW = "for now"
    """It may be set later: nothing else is tried meanwhile."""
    RUNG = "rung"
    """This rung cannot be applied here."""
    CULPRIT = "culprit"
    """The culprit is not to be acted upon at all."""


class ResponseStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step on the ladder, as it is logged and counted."""

    kind: StepKind
    rung: str
    culprit: str
    victim: str
    resource: str
    before: float
    """Seconds per second that the victim could hold against the culprit without the rung, before it was applied or in
    the newest lift; NaN where that is not known, as for a trip."""
    after: float
    """The same with the rung, averaged over the trial; in a lift and after it, the newest tick's."""
    reason: str
