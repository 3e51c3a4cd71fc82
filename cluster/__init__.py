"""The only door to the API server, and its in-process twin for tests."""
