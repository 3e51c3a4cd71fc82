"""Benchmark of what the agent costs a service beside it."""
