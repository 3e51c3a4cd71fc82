"""Plugins: one module each, known by the name that configurations spell."""
