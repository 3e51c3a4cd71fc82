"""Child process that compiles with BCC: `python -m probes.bcc.compiler FD` reads a request, sends descriptors on FD.

Standard input holds one JSON object {"text", "flags", "programs", "maps"}. The answer is one message with a
descriptor for each program and then each map, in the order asked. Messages of BCC go to standard error.
"""

import importlib
import json
import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGES = Path("/usr/lib/python3/dist-packages")
"""Where Debian and Ubuntu put python3-bpfcc; not on the path of a virtual environment."""


def import_bcc() -> ModuleType:
    """Import BCC's Python module; raises ImportError where it is not installed."""
    sys.path.append(str(PACKAGES))
    try:
        return importlib.import_module("bcc")
    finally:
        sys.path.remove(str(PACKAGES))


def descriptors(bcc: ModuleType, request: dict[str, Any]) -> list[int]:
    """Compile and load; raises Exception, as BCC does, when either fails."""
    bpf = bcc.BPF(text=request["text"], cflags=request["flags"])
    programs = [bpf.load_func(name.encode(), bcc.BPF.RAW_TRACEPOINT).fd for name in request["programs"]]
    return [*programs, *(bpf[name.encode()].map_fd for name in request["maps"])]


def main() -> None:
    request = json.load(sys.stdin)
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        socket.send_fds(channel, [b"done"], descriptors(import_bcc(), request))


if __name__ == "__main__":
    main()
