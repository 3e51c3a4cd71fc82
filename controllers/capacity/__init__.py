"""Arithmetic of overcommit: numbers of all nodes as columns, what batch and mid work may have of them. No I/O."""
