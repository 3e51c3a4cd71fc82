"""Anomaly models: features, files, training and evaluation."""
