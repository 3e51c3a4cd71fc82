"""What a cgroup is: its name, pod and workload."""
