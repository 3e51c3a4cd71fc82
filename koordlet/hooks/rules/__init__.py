"""Rules: one module, one rule, named by its file; koordlet/hooks/rule.py says how to write one."""
