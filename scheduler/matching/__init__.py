"""Matching of nodes and volumes with selectors, affinity terms and tolerations."""
