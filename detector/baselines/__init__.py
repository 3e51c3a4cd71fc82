"""Baselines: what is usual for a workload, learned in mergeable sketches."""
