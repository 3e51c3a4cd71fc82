"""Cluster-side controllers: plans from immutable views of the cluster."""
