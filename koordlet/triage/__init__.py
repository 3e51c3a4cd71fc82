"""Triage: the focus of expensive probes, within a CPU budget."""
