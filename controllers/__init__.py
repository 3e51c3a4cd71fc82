"""koord-manager: controllers that turn what nodes report into capacity, strategies, taints and quotas."""
