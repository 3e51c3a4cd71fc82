"""The control step: what the newest frames and verdicts ask of the node."""
