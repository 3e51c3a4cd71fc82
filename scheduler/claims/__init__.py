"""Resource claims: devices of ResourceSlices, the expressions that select them, and their allocation to claims."""
