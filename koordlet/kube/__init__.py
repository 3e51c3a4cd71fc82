"""Reporting to the cluster: Events on the victim's pod, and an annotation of the node that the scheduler reads.

`[cluster] enabled = true` turns it on; only then is `cluster` imported, which adds about 19 MB to the agent. The tick
passes values and never waits for the API server: a server that is away costs failures that are counted, and nothing
else.
"""
