"""A twin in a process of its own: `python -m cluster.twin --port 8001`, ended by a signal or end of input.

Prints its URL on the first line of standard output. For benchmarks, where server and clients must not share
one interpreter, and for trying programs by hand.
"""

import os
import signal
import sys
import threading

import click

from cluster.twin.twin import Twin, TwinSettings


@click.command(help=(__doc__ or "").partition("\n\n")[0])
@click.option("--port", default=0, show_default=True, help="Port on loopback; 0 takes a free one.")
@click.option("--bookmark-seconds", default=60.0, show_default=True, help="Distance of bookmarks.")
@click.option("--termination-seconds", type=float, help="Time that bound pods take to end; unset is for ever.")
@click.option("--disruption-controller", is_flag=True, help="Keep disruption budgets current.")
def main(port: int, bookmark_seconds: float, termination_seconds: float | None, disruption_controller: bool) -> None:
    """Serve until a signal arrives or standard input ends."""
    settings = TwinSettings(
        port=port,
        bookmark_seconds=bookmark_seconds,
        termination_seconds=termination_seconds,
        disruption_controller=disruption_controller,
    )
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with Twin(settings) as twin:
        click.echo(twin.url)
        sys.stdout.flush()
        threading.Thread(target=_wait_for_end_of_input, args=(ended,), daemon=True).start()
        ended.wait()


def _wait_for_end_of_input(ended: threading.Event) -> None:
    # A parent that dies closes the pipe, and no server is left behind.
    if not sys.stdin.isatty():
        # Not by sys.stdin, whose lock this thread would hold at the end of the interpreter, which aborts then.
        while os.read(sys.stdin.fileno(), 4096):
            pass
        ended.set()


if __name__ == "__main__":
    main()
