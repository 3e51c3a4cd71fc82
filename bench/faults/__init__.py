"""Faults at random moments of a control loop that acts: everything must be restored, once, and by nobody's hand."""
