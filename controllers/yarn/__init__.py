"""Batch resources of nodes for Hadoop YARN: `koord-yarn-copilot` tells ResourceManagers how much each NodeManager has,
and the cluster how much of its batch resources that is (docs/yarn.md)."""
