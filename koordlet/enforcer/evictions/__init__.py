"""Evictions: through the API server where the kubelet runs the pods, by signals on any other host."""
