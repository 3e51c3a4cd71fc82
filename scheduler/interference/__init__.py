"""Predicted lost seconds: what a pod suffers on a node, what it does to those there, and live verdicts."""
