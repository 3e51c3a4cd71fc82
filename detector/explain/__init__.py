"""Explanations of a recording: why there was a verdict, or none."""
