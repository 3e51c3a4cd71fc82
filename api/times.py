"""Times as the API server writes them, and the seconds since the epoch that programs reckon with."""

from datetime import UTC, datetime


def epoch_seconds(text: str | None) -> float | None:
    """Seconds since the epoch of an RFC 3339 text; None for None, "" and anything else."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def rfc3339(seconds: float) -> str:
    """Seconds since the epoch as the API server writes times: UTC, whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
