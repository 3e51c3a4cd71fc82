"""What the scheduler answers over HTTP."""
