"""Identity of cgroups: name, pod and workload."""
