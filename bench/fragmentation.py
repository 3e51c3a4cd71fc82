"""GPUs allocated and fragmented on a GPU trace, by policy: the look-ahead must allocate the most.

    python -m bench.fragmentation NODES.csv PODS.csv [--seeds 5] [--until 1.3] [--out DIR]

Replays the pods of the trace in random order, without departures, until `--until` times the cluster's GPUs have been
asked for. Exit code 1 when another policy allocates as many GPUs as the look-ahead.
"""

import argparse
import sys
import time
from pathlib import Path

from scheduler.simulation.command import load_trace, saturation_report, saturation_runs, write_saturation
from scheduler.simulation.policies import POLICIES
from scheduler.simulation.report import best_policy


def main() -> int:
    """Run, print the tables, and say whether the look-ahead won."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nodes", type=Path)
    parser.add_argument("pods", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--until", type=float, default=1.3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    started = time.perf_counter()
    nodes, pods = load_trace(options.nodes, options.pods)
    curves = saturation_runs(nodes, pods, POLICIES, range(options.seeds), until=options.until)
    print(saturation_report(curves, options.until))
    decisions = sum(curve.decisions for curve in curves)
    print(f"\n{decisions} decisions over {len(nodes)} nodes in {time.perf_counter() - started:.0f} s")
    if options.out is not None:
        write_saturation(curves, options.until, options.out)
    best = best_policy(curves)
    if best != "look-ahead":
        print(f"FAILED: {best} allocates most", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
