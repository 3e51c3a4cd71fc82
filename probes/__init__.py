"""BPF programs and the Python modules that read their maps as columns. Keyed by cgroup id, never by name."""
