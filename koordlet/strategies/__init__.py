"""One module, one strategy: what a node should have set now, decided from an immutable view and a time."""
