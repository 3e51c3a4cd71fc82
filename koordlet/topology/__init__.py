"""CPUs of the node as Koordinator's protocol tells of them: share pools, the kubelet's CPU manager, the report.

`share_pools.py` and `node_topology.py` decide from values; `reporter.py` reads the host and writes the
NodeResourceTopology object.
"""
