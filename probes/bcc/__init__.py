"""The probes `cpu`, `memory` and `blockio` for kernels with header files but no BTF: BCC compiles them on the node.

The programs fill the same maps with the same records as their CO-RE twins, so one Python class reads both. BCC and
its compiler run in a child process that hands over descriptors and ends: the agent neither imports nor keeps them.
"""
