"""Two weeks of a cluster of services and batch work: what co-location gains and costs, by rules."""
