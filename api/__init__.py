"""The vocabulary: what crosses a border between programs, and nothing that decides.

Imports the standard library, numpy and msgspec only."""
