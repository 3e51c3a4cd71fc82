"""Scores of verdicts against labels."""
