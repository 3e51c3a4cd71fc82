"""Stacks of culprits and victims when a verdict opens: taken, given names, and handed to the recording."""
