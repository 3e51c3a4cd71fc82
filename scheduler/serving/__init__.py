"""What the scheduler answers over HTTP, and the listener with its limits."""
