"""Elastic quota as arithmetic: who may use how much, lent and returned fairly; integers in, integers out."""
