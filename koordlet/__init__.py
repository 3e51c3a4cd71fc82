"""The node agent: measures cgroups, judges who loses time to whom, acts within limits, and reports."""
