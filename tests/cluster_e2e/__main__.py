"""By hand: `python -m tests.cluster_e2e up` runs a node until Ctrl-C, `clean` removes what a killed run left,
`guest KERNEL [TEST...]` tests a node in a guest of tests/vm, `6.12` for instance, with cgroup v2.
KOORD_CGROUP_DRIVER is the kubelet's cgroup driver there, `systemd` where it is not set.

KUBEBUILDER_ASSETS names the folder of binaries.
"""

import os
import signal
import sys
from pathlib import Path

from tests.cluster_e2e.guest import run_in_guest
from tests.cluster_e2e.node import node_running, remove
from tests.cluster_e2e.record import locked
from tests.vm.debian import UnavailableError


def _say(line: str) -> None:
    print(line, flush=True)


def main(arguments: list[str]) -> int:
    assets = Path(os.environ["KUBEBUILDER_ASSETS"])
    if arguments == ["clean"]:
        with locked() as record:
            if record is not None:
                remove(assets, record)
        return 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    if arguments[:1] == ["guest"] and len(arguments) > 1:
        try:
            driver = os.environ.get("KOORD_CGROUP_DRIVER", "systemd")
            return run_in_guest(arguments[1], driver, assets, Path("build/vm-cluster"), arguments[2:], _say)
        except UnavailableError as error:
            _say(f"no guest: {error}")
            return 3
    if arguments != ["up"]:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        with node_running(assets) as node:
            print(f"export KUBECONFIG={node.kubeconfig}", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
