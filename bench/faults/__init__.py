"""Faults at random moments of a control loop that acts: everything must be restored, once, without a person."""
