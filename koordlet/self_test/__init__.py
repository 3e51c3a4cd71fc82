"""Self-test: stressors that move each counter, and what was measured against what they did."""
