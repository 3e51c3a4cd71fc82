"""Cgroup hierarchies: where they are mounted, which cgroups there are, their processes and memory."""
