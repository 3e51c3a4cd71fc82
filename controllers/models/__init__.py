"""Anomaly models for the fleet: trained from collected profiles, tried, delivered in WorkloadProfiles, withdrawn."""
