"""State of a service, told to systemd (sd_notify(3))."""

import contextlib
import os
import socket


def tell_systemd(state: str) -> None:
    """Send a line such as `READY=1`; without systemd, nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    target = "\0" + address[1:] if address.startswith("@") else address
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), target)
