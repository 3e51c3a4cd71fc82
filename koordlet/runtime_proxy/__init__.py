"""`koord-runtime-proxy`: a gRPC proxy of the Container Runtime Interface between the kubelet and a runtime.

Calls pass through as bytes. Those that create, start, change or stop pods and containers are decoded, and hook servers
may change them. `merging.py`, `registration.py` and `hook_types.py` decide; `forwarding.py` and `hook_servers.py` touch
sockets, `hook_directory.py` files. `hook_service.py` is the other side: a hook server over rules.
"""
