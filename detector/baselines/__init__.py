"""Baselines: usual values of a workload's signals, learned in mergeable sketches."""
