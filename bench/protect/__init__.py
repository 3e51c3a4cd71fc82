"""Benchmark of ways to protect a service: its latency, and the best-effort work beside it."""
