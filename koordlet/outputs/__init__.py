"""Outputs of a tick: log, JSON lines, socket, cluster, profiles."""
