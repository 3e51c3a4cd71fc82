"""The node agent: measures cgroups, judges lost time and its culprits, acts within limits, and reports."""
