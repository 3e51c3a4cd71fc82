"""gRPC on the agent's unix socket: verdicts as they open, change and close, and what the node can measure.

Off by default: grpcio, protobuf and reflection add about 15 MB to the 60 MB that the agent has resident without them
(6 of them private), and most nodes are asked through Prometheus only. Nothing here is imported before
`[serving] enabled = true` asks for it, except the settings and the command.
"""
