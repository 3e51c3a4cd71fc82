"""By hand: `python -m tests.cluster_e2e up` runs a node until Ctrl-C, `clean` removes what a killed run left.

KUBEBUILDER_ASSETS names the folder of binaries.
"""

import os
import signal
import sys
from pathlib import Path

from tests.cluster_e2e.node import node_running, remove
from tests.cluster_e2e.record import locked


def main(arguments: list[str]) -> int:
    assets = Path(os.environ["KUBEBUILDER_ASSETS"])
    if arguments == ["clean"]:
        with locked() as record:
            if record is not None:
                remove(assets, record)
        return 0
    if arguments != ["up"]:
        print(__doc__, file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        with node_running(assets) as node:
            print(f"export KUBECONFIG={node.kubeconfig}", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
