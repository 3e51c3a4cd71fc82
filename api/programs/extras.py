"""Extras of the distribution: a program whose packages are missing names the extra and the command that installs it."""

import sys
from importlib.util import find_spec
from typing import Final

NEEDED: Final = {"cluster": ("kubernetes", "urllib3"), "grpc": ("google.protobuf", "grpc")}
"""Modules of each extra that a program imports before it does anything."""
MISSING = 3
"""Exit code."""


def require(program: str, extra: str) -> None:
    """Exit with a sentence and a command where a module of the extra is not installed."""
    missing = [name for name in NEEDED[extra] if not is_installed(name)]
    if missing:
        sys.stderr.write(f"error: {program} needs {' and '.join(missing)}\nhint: pip install 'koord[{extra}]'\n")
        sys.exit(MISSING)


def is_installed(name: str) -> bool:
    """Return whether a module can be imported, without importing it."""
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # no parent package, or a module that was put out of reach
        return False
