"""Profiles of workloads: how sensitive each is to its neighbours, and how much it costs them. See docs/profiles.md."""
