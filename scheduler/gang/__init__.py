"""Gangs as a state machine: who belongs together, who is missing, and when all may go or all must let go."""
