"""Elastic quota as arithmetic: runtimes of quotas, lent and returned fairly; integers in, integers out."""
