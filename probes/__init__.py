"""The kernel side: BPF programs and the Python modules that read them as columns. Knows cgroup ids, never names."""
