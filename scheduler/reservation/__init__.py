"""Reservations: room for pods that are still to come, with owners, what is left, and an end."""
