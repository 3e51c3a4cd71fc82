"""Devices of the node for the scheduler: GPUs, NICs and FPGAs as the Device object tells of them.

Sources (`nvml.py`, `xpu_files.py`, `rdma.py`, `fpga.py`) find devices, `device_object.py` decides what the object
says, `reporter.py` runs both and writes. Absent hardware is `Unsupported` with the reason.
"""
