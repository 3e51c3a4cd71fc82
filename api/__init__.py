"""Vocabulary shared by all programs: the values that cross a border between them. No decisions, no I/O.

Imports the standard library, numpy and msgspec only."""
