"""`kubectl koord`: what Koord sees and does in a cluster, from a workstation."""
