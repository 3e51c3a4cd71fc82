"""The agent: the loop, the tick, and what they measure with."""
