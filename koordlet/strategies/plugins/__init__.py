"""One module, one strategy."""
