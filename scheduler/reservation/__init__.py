"""Room kept for pods that are still to come: whose it is, how much is left of it, and when it ends."""
