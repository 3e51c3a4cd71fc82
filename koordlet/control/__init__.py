"""Control: response and strategies decide on each tick, the enforcer applies; harm and slowdown are metered."""
