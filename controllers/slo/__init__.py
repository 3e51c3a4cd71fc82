"""The slo-controller ConfigMap: layers of strategies, their checks, and the strategy of each node. No I/O."""
