"""Ordinary work for hours beside the agent, live and replayed: verdicts about it, and what rate they bound."""
