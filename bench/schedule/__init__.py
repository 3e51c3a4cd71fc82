"""Rates and costs of the scheduler (`python -m bench.schedule --help`)."""
