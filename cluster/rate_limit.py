"""Rate limit and back-off: a token bucket and jittered delays, clocks passed in.

`TokenBucket` hands out reservations, so that many threads queue fairly without holding a lock while they
sleep. Jitter keeps a thousand clients that failed together from returning together.
"""

import threading
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that grow by `factor` from `initial_seconds` to `maximum_seconds`.

    `jitter` is the fraction of each delay that is random: 1.0 draws from (0, delay], 0 gives the delay.
    """

    initial_seconds: float = 0.1
    maximum_seconds: float = 10.0
    factor: float = 2.0
    jitter: float = 0.5

    def delay_seconds(self, attempt: int, random: Random) -> float:
        """The wait before retry number `attempt` (from 0)."""
        # The exponent is bounded: a float overflows after a few hundred failures in a row.
        full = min(self.maximum_seconds, self.initial_seconds * self.factor ** min(attempt, 64))
        return full * (1.0 - self.jitter * random.random())


class TokenBucket:
    """Allows `burst` at once and `per_second` sustained; safe to share between threads."""

    def __init__(self, per_second: float, burst: float) -> None:
        if per_second <= 0 or burst < 1:
            raise ValueError(f"rate limit needs per_second > 0 and burst >= 1, got {per_second} and {burst}")
        self._per_second = per_second
        self._burst = burst
        self._tokens = burst
        self._updated_seconds: float | None = None
        self._lock = threading.Lock()

    def reserve(self, now_seconds: float) -> float:
        """Take one token; returns the seconds to wait before using it (0 when one was there)."""
        with self._lock:
            self._refill(now_seconds)
            self._tokens -= 1
            return max(0.0, -self._tokens / self._per_second)

    def try_take(self, now_seconds: float) -> bool:
        """Take one token only if it is there."""
        with self._lock:
            self._refill(now_seconds)
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def full(self, now_seconds: float) -> bool:
        """Return whether the bucket is as good as a new one."""
        with self._lock:
            self._refill(now_seconds)
            return self._tokens >= self._burst

    def _refill(self, now_seconds: float) -> None:
        if self._updated_seconds is not None:
            # A clock that steps back must not take tokens away.
            passed = max(0.0, now_seconds - self._updated_seconds)
            self._tokens = min(self._burst, self._tokens + passed * self._per_second)
        self._updated_seconds = now_seconds
