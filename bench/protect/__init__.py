"""What each way to protect a service leaves of its latency, and of the best-effort work beside it."""
