"""The only door to /proc, /sys and the cgroup trees: readers take their root and return values."""
