"""Knobs: from a knob, a target and a value to the kernel files that carry it."""
