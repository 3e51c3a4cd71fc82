"""Build the BPF objects: clang on `bpf/*.bpf.c`, once for each target architecture, cached by content.

The programs bring their own definitions of the kernel fields they read (kernel.bpf.h) and CO-RE fits them to the
running kernel at load, so the build needs no kernel headers, no BTF and gives the same object on every host, in every
folder.

    python -m probes.build            build for this machine's architecture and report it
    python -m probes.build x86 arm64  build for the named targets
"""

import hashlib
import platform
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parent / "bpf"
PLAIN_C = Path(__file__).resolve().parent / "c"
"""Headers of plain C that the programs share with those that BCC compiles."""
OBJECTS = Path(__file__).parent / "objects"
TARGETS = {"x86_64": "x86", "aarch64": "arm64"}
"""Machine name to libbpf's target name."""

_CLANGS = ("clang-14", "clang", "clang-19", "clang-16", "clang-15")
_STRIPS = ("llvm-strip-14", "llvm-strip", "llvm-strip-19", "llvm-strip-16", "llvm-strip-15")


class BuildError(RuntimeError):
    """A compiler is missing or refused a source; the message is for the user."""


def target() -> str:
    """Return this machine's target name. Raises BuildError for an architecture without one."""
    machine = platform.machine()
    if machine not in TARGETS:
        raise BuildError(f"no BPF target is known for {machine}; known: {', '.join(TARGETS)}")
    return TARGETS[machine]


def object_path(stem: str, wanted: str | None = None) -> Path:
    """Return the path of the object of `bpf/<stem>.bpf.c` for a target."""
    return OBJECTS / (wanted or target()) / f"{stem}.bpf.o"


def build(wanted: str) -> list[Path]:
    """Compile every source whose content changed; returns what was compiled. Raises BuildError."""
    headers = b"".join(path.read_bytes() for path in sorted((*SOURCES.glob("*.bpf.h"), *PLAIN_C.glob("*.h"))))
    built = []
    for source in sorted(SOURCES.glob("*.bpf.c")):
        destination = object_path(source.name.removesuffix(".bpf.c"), wanted)
        digest = hashlib.sha256(headers + source.read_bytes() + Path(__file__).read_bytes()).hexdigest()
        stamp = destination.with_suffix(".sha256")
        if destination.exists() and stamp.exists() and stamp.read_text() == digest:
            continue
        destination.parent.mkdir(parents=True, exist_ok=True)
        _compile(source, destination, wanted)
        stamp.write_text(digest)
        built.append(destination)
    return built


def _compile(source: Path, destination: Path, wanted: str) -> None:
    command = [
        clang(),
        "-g",
        "-O2",
        "-target",
        "bpf",
        f"-D__TARGET_ARCH_{wanted}",
        "-mcpu=v3",
        "-Wall",
        "-Werror",
        "-Wno-missing-declarations",
        # BTF names the source of each line: relative to here, lest objects differ by the folder of the tree.
        "-fdebug-compilation-dir=.",
        f"-I{SOURCES.name}",
        f"-I{PLAIN_C.name}",
        f"-I/usr/include/{platform.machine()}-linux-gnu",
        "-c",
        str(source.relative_to(SOURCES.parent)),
        "-o",
        str(destination.absolute()),
    ]
    done = subprocess.run(command, cwd=SOURCES.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{source}:\n{done.stderr}")
    strip = next((path for path in map(shutil.which, _STRIPS) if path), None)
    if strip:  # drops DWARF, keeps BTF
        subprocess.run([strip, "-g", str(destination)], check=True)


def clang() -> str:
    """Return the path of the compiler. Raises BuildError where none is installed."""
    return _first(_CLANGS, "clang", "install clang-14 (Debian/Ubuntu)")


def _first(names: tuple[str, ...], what: str, remedy: str) -> str:
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    raise BuildError(f"{what} not found; {remedy}")


def main(arguments: list[str]) -> int:
    """Build for the named targets (default: this machine's)."""
    try:
        for wanted in arguments or [target()]:
            built = build(wanted)
            total = len(list(SOURCES.glob("*.bpf.c")))
            sys.stdout.write(f"bpf objects for {wanted}: {len(built)} built, {total - len(built)} up to date\n")
    except BuildError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
