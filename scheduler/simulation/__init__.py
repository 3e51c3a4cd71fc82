"""The scheduler without a cluster: a trace or a generated day goes through the same engine, and what came of it.

Nothing here reads a clock or the API server; files are read and written by `scheduler.simulation.command` alone.
"""
