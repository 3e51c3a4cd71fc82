"""Triage: where expensive probes look, within a CPU budget."""
