"""CPI2 (Zhang et al., EuroSys 2013)."""
