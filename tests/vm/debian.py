"""Kernels from Debian: any suite of the mirror that this machine's apt is configured with.

A private apt state directory per suite leaves the machine's own package lists alone. Packages are kept unpacked,
by their SHA-256; a suite's last resolution is kept too, so that a run without network still finds them.
"""

import json
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
RESOLUTION_MAX_AGE_SECONDS = 24 * 3600
_KERNEL_PACKAGE = re.compile(r"linux-(image|binary|modules|base)-[0-9].*")
_HEADER_PACKAGE = re.compile(r"linux-(headers|kbuild)-[0-9].*")


class UnavailableError(Exception):
    """No such kernel for this machine; the text has the reason."""


@dataclass(frozen=True, slots=True)
class Package:
    """One .deb, as the archive's index describes it."""

    name: str
    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """An unpacked kernel: `modules` is its directory below lib/modules, with modules.dep in it."""

    package: str
    release: str
    vmlinuz: Path
    modules: Path


def _run(command: list[str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise UnavailableError(f"{command[0]}: {_without_addresses(lines[-1] if lines else 'failed')}")
    return done.stdout


def _without_addresses(text: str) -> str:
    return re.sub(r"\w+:/+[^\s']+", "<archive>", text)


def archive_uri() -> str:
    """Return the address of the Debian archive that apt uses here."""
    listing = _run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"])
    if not listing.strip():
        raise UnavailableError("apt has no Debian archive among its sources")
    return listing.splitlines()[0]


class Suite:
    """One suite, resolved and downloaded below `cache`."""

    def __init__(self, name: str, cache: Path) -> None:
        self.name = name
        self._cache = cache
        self._state = cache / "apt" / name
        self._resolution = cache / "suites" / f"{name}.json"

    def kernel(self) -> Kernel:
        """Return the suite's default kernel, unpacked. Raises UnavailableError."""
        packages = self._resolve()
        trees = [self._unpacked(package) for package in packages]
        return self._assemble(packages, trees)

    def headers(self, release: str) -> Path:
        """Return a directory with the header files of `release`, laid out as in /usr/src. Raises UnavailableError."""
        directory = self._cache / "headers" / release
        if not directory.exists():
            metapackage = f"linux-headers-{release}"
            self._list_packages()
            names = [metapackage, *self._dependencies(metapackage, _HEADER_PACKAGE)]
            unfinished = directory.with_suffix(".partial")
            shutil.rmtree(unfinished, ignore_errors=True)
            for name in names:
                source = self._unpacked(self._describe(name)) / "usr" / "src"
                shutil.copytree(source, unfinished, symlinks=True, dirs_exist_ok=True)
            unfinished.rename(directory)
        return directory

    def _resolve(self) -> list[Package]:
        """Return the packages that make up linux-image-amd64, from the archive or from the last resolution."""
        remembered = self._remembered()
        if remembered and time.time() - self._resolution.stat().st_mtime < RESOLUTION_MAX_AGE_SECONDS:
            return remembered
        try:
            packages = self._ask_archive()
        except UnavailableError:
            if remembered and all(self._tree(package).exists() for package in remembered):
                return remembered
            raise
        self._resolution.parent.mkdir(parents=True, exist_ok=True)
        self._resolution.write_text(
            json.dumps([{"name": p.name, "file": p.file, "sha256": p.sha256} for p in packages])
        )
        return packages

    def _remembered(self) -> list[Package]:
        if not self._resolution.exists():
            return []
        return [Package(**row) for row in json.loads(self._resolution.read_text())]

    def _apt(self, program: str, *arguments: str) -> list[str]:
        options = {
            "Dir::Etc::sourcelist": str(self._state / "sources.list"),
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State::lists": str(self._state / "lists"),
            "Dir::Cache::pkgcache": "",
            "Dir::Cache::srcpkgcache": "",
            "Acquire::Languages": "none",
        }
        return [program, *(part for key, value in options.items() for part in ("-o", f"{key}={value}")), *arguments]

    def _list_packages(self) -> str:
        """Bring the suite's package lists up to date; returns the architecture."""
        architecture = _run(["dpkg", "--print-architecture"]).strip()
        (self._state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        signed_by = f" signed-by={KEYRING}" if KEYRING.exists() else ""
        source = f"deb [arch={architecture}{signed_by}] {archive_uri()} {self.name} main\n"
        (self._state / "sources.list").write_text(source)
        _run(self._apt("apt-get", "-q", "update", "--error-on=any"))
        return architecture

    def _ask_archive(self) -> list[Package]:
        names = self._dependencies(f"linux-image-{self._list_packages()}", _KERNEL_PACKAGE)
        return [self._describe(name) for name in names]

    def _dependencies(self, metapackage: str, wanted: re.Pattern[str]) -> list[str]:
        """Follow dependencies to every package that holds a part of the versioned kernel or its headers."""
        found: list[str] = []
        todo = [metapackage]
        while todo:
            listing = _run(self._apt("apt-cache", "depends", "--no-recommends", "--no-suggests", todo.pop()))
            for name in re.findall(r"^\s+(?:Pre)?Depends: (\S+)$", listing, re.MULTILINE):
                if wanted.fullmatch(name) and name not in found:
                    found.append(name)
                    todo.append(name)
        if not found:
            raise UnavailableError(f"{metapackage} of {self.name} names no kernel package")
        return found

    def _describe(self, name: str) -> Package:
        # 'address' file size SHA256:digest
        line = _run(self._apt("apt-get", "download", "--print-uris", name)).split()
        digest = line[3].partition(":")
        if digest[0] != "SHA256":
            raise UnavailableError(f"{name}: the archive's index gives no SHA-256")
        return Package(name, line[1], digest[2])

    def _tree(self, package: Package) -> Path:
        return self._cache / "packages" / package.sha256

    def _unpacked(self, package: Package) -> Path:
        """Download and unpack unless cached. apt checks the file against the index."""
        tree = self._tree(package)
        if not tree.exists():
            unfinished = tree.with_suffix(".partial")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            _run(self._apt("apt-get", "-q", "download", package.name), cwd=unfinished)
            _run(["dpkg-deb", "-x", str(next(unfinished.glob("*.deb"))), str(unfinished / "tree")])
            (unfinished / "tree").rename(tree)
            shutil.rmtree(unfinished)
        return tree

    @staticmethod
    def _assemble(packages: list[Package], trees: list[Path]) -> Kernel:
        """Find the image and the modules among the unpacked packages."""
        images, modules = _find(trees, "boot/vmlinuz-*"), _find(trees, "modules/*/kernel")
        images += _find(trees, "modules/*/vmlinuz")
        if not images or not modules:
            raise UnavailableError(f"no image or no modules in {', '.join(p.name for p in packages)}")
        directory = modules[0].parent
        if not (directory / "modules.dep").exists():
            _run(["depmod", "-b", str(directory.parents[2]), directory.name])
        return Kernel(packages[0].name, directory.name, images[0], directory)


def _find(trees: list[Path], pattern: str) -> list[Path]:
    """Match below each tree, or below its library directory (merged with /usr or not)."""
    places = ("",) if pattern.startswith("boot/") else ("lib/", "usr/lib/")
    return [path for tree in trees for place in places for path in tree.glob(place + pattern)]
