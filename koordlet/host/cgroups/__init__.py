"""Cgroup hierarchies: mounts, the present cgroups, their processes and memory."""
