"""Knobs: one specification for each, and their translation to the kernel files of a host."""
