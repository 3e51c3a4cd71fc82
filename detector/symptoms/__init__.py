"""Symptoms, a module each: a way to lose time, the columns that measure it, the source of its culprits."""
