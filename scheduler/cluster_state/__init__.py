"""The cluster as columns: nodes, pods, labels and topology."""
