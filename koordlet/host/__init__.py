"""Access to /proc, /sys and the cgroup trees, for the whole agent: readers take their root and return values."""
