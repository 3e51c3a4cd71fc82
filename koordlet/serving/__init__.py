"""gRPC on the agent's unix socket: verdicts as they open, change and close, and what the node can measure.

Off by default: grpcio, protobuf and reflection add about 22 MB to the agent's resident memory, more than a third of
what it needs without them, and most nodes are asked through Prometheus only. Nothing here is imported before
`[serving] enabled = true` asks for it, except the settings.
"""
