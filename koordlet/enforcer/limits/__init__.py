"""Bounds of what is done: rights of strategies by class, and how many cgroups are limited at once."""
