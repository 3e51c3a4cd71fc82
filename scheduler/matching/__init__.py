"""Which nodes and volumes satisfy selectors, affinity terms and tolerations."""
