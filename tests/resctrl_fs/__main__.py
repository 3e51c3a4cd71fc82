"""Mount a stand-in resctrl: `python -m tests.resctrl_fs --flavour intel [-o cdp,mba_MBps] MOUNTPOINT`.

Requests (see control.py) are read from standard input, answers go to standard output; the end of standard
input unmounts, unless it is a terminal or `--stay` is given.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path

import click
import msgspec

from tests.resctrl_fs.control import answer
from tests.resctrl_fs.hardware import FLAVOURS, Machine
from tests.resctrl_fs.mount import serve
from tests.resctrl_fs.tree import ResctrlTree


@click.command()
@click.option("--flavour", type=click.Choice(sorted(FLAVOURS)), default="intel", show_default=True)
@click.option("--machine", "machine_json", help="A whole machine as JSON, instead of a flavour.")
@click.option("-o", "options", default="", help="Mount options: cdp, cdpl2, mba_MBps, debug.")
@click.option("--stay", is_flag=True, help="Stay mounted when standard input ends.")
@click.argument("mountpoint", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(flavour: str, machine_json: str | None, options: str, stay: bool, mountpoint: Path) -> None:
    """Serve a resctrl file system at MOUNTPOINT until it is unmounted."""
    machine = msgspec.json.decode(machine_json, type=Machine) if machine_json else FLAVOURS[flavour]
    try:
        tree = ResctrlTree(machine, frozenset(filter(None, options.split(","))))
    except OSError as error:
        raise click.ClickException(f"mount refused: {error.strerror}") from error
    lock = threading.Lock()
    is_tied = not stay and not sys.stdin.isatty()
    threading.Thread(target=_serve_requests, args=(tree, lock, mountpoint, is_tied), daemon=True).start()
    serve(tree, lock, mountpoint)


def _serve_requests(tree: ResctrlTree, lock: threading.Lock, mountpoint: Path, is_tied: bool) -> None:
    # Unbuffered: the interpreter cannot end while this thread holds a buffer's lock.
    with os.fdopen(0, "rb", buffering=0, closefd=False) as requests:
        for line in requests:
            with lock:
                reply = answer(tree, line)
            os.write(1, reply)
    if is_tied:
        subprocess.run(["fusermount3", "-u", "-z", str(mountpoint)], check=False)


if __name__ == "__main__":
    main()
