"""The kubelet and the container runtime of this node: pods, containers, their cgroups, the kubelet's configuration.

`source.py` keeps the newest `PodTable` in a thread of its own; `cgroup_paths.py` says where the kubelet places a pod.
Pods come from the kubelet, or from the API server where the kubelet does not answer; containers from the runtime's
socket. What is away is asked again with back-off, and what was last known stays. grpc and `cluster` are imported only
when a source opens.
"""
