"""Strategy plugins: one module, one strategy, named by its file; koordlet/strategies/strategy.py says how to
write one."""
