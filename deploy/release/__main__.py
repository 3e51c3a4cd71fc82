"""Make a release, or a part of it: `python -m deploy.release [wheel|sbom|wheelhouse|deb|image|all] --output dist`."""

import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click

from deploy.release import debian, image, wheel
from deploy.release.locked import ROOT, PackageNotFoundError, locked
from deploy.release.sbom import bill

EXTRAS = ("cluster", "grpc")
"""Of the Debian package and the image; analysis and GPUs are installed where they are wanted."""
PARTS = ("wheel", "sbom", "wheelhouse", "deb", "image")


def version() -> str:
    """Return the project's version."""
    with (ROOT / "pyproject.toml").open("rb") as stream:
        return str(tomllib.load(stream)["project"]["version"])


def make_wheelhouse(folder: Path) -> None:
    """Download a wheel for each locked package of the extras, by its hash. Raises ReleaseError."""
    listed = "".join(pin.line for pin in locked(EXTRAS))
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write(listed)
        requirements.flush()
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", "--only-binary", ":all:"]
        command += ["--disable-pip-version-check", "--no-deps", "--dest", str(folder), "-r", requirements.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise wheel.ReleaseError(f"pip download: {done.stderr.strip()[-2000:]}")


def make(part: str, output: Path) -> None:
    """Make one part. Raises ReleaseError."""
    seconds = wheel.commit_seconds()
    if part == "wheel":
        wheel.build_twice(output)
    elif part == "sbom":
        when = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        every = ("analysis", *EXTRAS, "gpu")
        (output / f"koord-{version()}.cdx.json").write_text(bill(version(), locked(every), every, when))
    elif part == "wheelhouse":
        make_wheelhouse(output / "wheelhouse")
    elif part == "deb":
        with programs(output) as (made, folder):
            root = folder / "root"
            debian.stage(made, root)
            debian.pack(root, output, version(), seconds)
    else:
        make_image(output, seconds)


@contextmanager
def programs(output: Path) -> Iterator[tuple[Path, Path]]:
    """A virtual environment of all programs from locked wheels, and a folder that is removed after use."""
    found = next(output.glob("koord-*.whl"), None) or wheel.build_twice(output)
    if not (output / "wheelhouse").is_dir():
        make_wheelhouse(output / "wheelhouse")
    with tempfile.TemporaryDirectory(prefix="koord-programs-") as folder:
        listed = "".join(pin.line for pin in locked(EXTRAS))
        yield debian.environment(output / "wheelhouse", found, listed, Path(folder)), Path(folder)


def make_image(output: Path, seconds: int) -> None:
    """Build the image twice from the same packages, and compare. Raises ReleaseError where the two differ."""
    archives = image.download(image.packages(["image"]), output / "debian-packages")
    digests = []
    for turn in range(2):
        with programs(output) as (made, folder):
            path = output if turn == 0 else folder / "again"
            path.mkdir(exist_ok=True)
            digests.append(wheel.sha256(image.build(path, made, archives, folder / "image", version(), seconds)))
    if len(set(digests)) != 1:
        raise wheel.ReleaseError("two builds of the image differ; compare their layers with: diffoscope")


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice([*PARTS, "all"]))
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), default=ROOT / "dist", show_default="dist")
@click.option("--allow-dirty", is_flag=True, help="Release the last commit although the tree has changes.")
def main(parts: tuple[str, ...], output: Path, allow_dirty: bool) -> None:
    """Make wheel and image (twice, compared), bill of materials, wheelhouse, Debian package, and SHA256SUMS."""
    wanted = PARTS if not parts or "all" in parts else parts
    dirty = wheel.uncommitted()
    if dirty and not allow_dirty:
        raise click.ClickException(f"not committed: {', '.join(dirty[:5])}; commit, or give --allow-dirty")
    output.mkdir(parents=True, exist_ok=True)
    try:
        for part in wanted:
            make(part, output)
    except (wheel.ReleaseError, PackageNotFoundError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    files = sorted(path for path in output.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    (output / "SHA256SUMS").write_text("".join(f"{wheel.sha256(path)}  {path.name}\n" for path in files))
    for path in files:
        click.echo(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
