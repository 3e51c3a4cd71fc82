"""The locked dependencies: versions and hashes of requirements.lock, and which of them a set of extras needs."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements.lock"
NODE_LOCK = ROOT / "deploy" / "node.lock"
"""The part of the lock that an installation for nodes takes, and what builds the wheel there."""
PROJECT = "koord"
EXTRAS = ("cluster", "grpc")
"""Of the Debian package and the images; analysis and GPUs are installed where they are wanted."""
_BUILDS = ("setuptools",)
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pin:
    """One locked package."""

    name: str
    """Canonical, as registries spell it."""
    version: str
    hashes: tuple[str, ...]
    """`sha256:...` of every file of the version, sorted."""

    @property
    def line(self) -> str:
        """The requirement with its hashes, for pip."""
        return f"{self.name}=={self.version}" + "".join(f" \\\n    --hash={each}" for each in self.hashes) + "\n"


def pins(lock: str) -> dict[str, Pin]:
    """Return the packages of a lock file by canonical name. Raises ValueError for one without a hash."""
    found: dict[str, Pin] = {}
    for name, version, rest in _PIN.findall(lock):
        hashes = tuple(sorted(re.findall(r"--hash=(sha256:[0-9a-f]{64})", rest)))
        if not hashes:
            raise ValueError(f"{name}=={version} has no hash in the lock file")
        found[canonicalize_name(name)] = Pin(canonicalize_name(name), version, hashes)
    return found


def closure(extras: Iterable[str], project: str = PROJECT) -> tuple[str, ...]:
    """Return the canonical names of all that the project with these extras needs here, by the installed metadata.

    Raises PackageNotFoundError where one of them is not installed.
    """
    needed: dict[str, set[str]] = {}
    waiting: list[tuple[str, frozenset[str]]] = [(canonicalize_name(project), frozenset(extras))]
    while waiting:
        name, wanted = waiting.pop()
        if name in needed and wanted <= needed[name]:
            continue
        needed.setdefault(name, set()).update(wanted)
        for text in _requirements(name):
            requirement = Requirement(text)
            environments = [{"extra": extra} for extra in (*needed[name], "")]
            if requirement.marker is None or any(map(requirement.marker.evaluate, environments)):
                waiting.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return tuple(sorted(needed.keys() - {canonicalize_name(project)}))


def _requirements(name: str) -> list[str]:
    """Return what a package needs; of the project itself what the tree says: an installation may be older."""
    if name != canonicalize_name(PROJECT):
        return list(distribution(name).requires or ())
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = table["optional-dependencies"].items()
    return [*table["dependencies"], *(f'{text} ; extra == "{extra}"' for extra, texts in optional for text in texts)]


def locked(extras: Iterable[str], lock: str | None = None) -> tuple[Pin, ...]:
    """Return the pins of what the extras need. Raises ValueError where one is not in the lock file."""
    known: Mapping[str, Pin] = pins(LOCK.read_text() if lock is None else lock)
    names = closure(extras)
    missing = [name for name in names if name not in known]
    if missing:
        raise ValueError(f"not in requirements.lock: {', '.join(missing)}; run: make lock")
    return tuple(known[name] for name in names)


def node_lock() -> str:
    """Return the text of `NODE_LOCK`."""
    every = pins(LOCK.read_text())
    found = {pin.name: pin for pin in (*locked(EXTRAS), *(every[name] for name in _BUILDS))}
    return "".join(found[name].line for name in sorted(found))


__all__ = [
    "EXTRAS",
    "LOCK",
    "NODE_LOCK",
    "PROJECT",
    "ROOT",
    "PackageNotFoundError",
    "Pin",
    "closure",
    "locked",
    "node_lock",
    "pins",
]
