"""Benchmark of the agent on a real node: pods of every class beside each other."""
