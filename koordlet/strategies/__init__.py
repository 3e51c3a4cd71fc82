"""Node strategies: values in, intents out, from an immutable view of the node; see strategy.py for writing one."""
