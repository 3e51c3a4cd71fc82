"""Make a release, or parts of it: `python -m deploy.release [PART...] --output dist`; `PARTS` are these."""

import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import click

from deploy.release import debian, image, wheel, wheelhouse
from deploy.release.locked import EXTRAS, NODE_LOCK, ROOT, PackageNotFoundError, locked, node_lock
from deploy.release.sbom import bill

PARTS = ("wheel", "sbom", "wheelhouse", "deb", "image", "image-bcc")


def version() -> str:
    """Return the project's version."""
    with (ROOT / "pyproject.toml").open("rb") as stream:
        return str(tomllib.load(stream)["project"]["version"])


@cache
def built(output: Path) -> Path:
    """Return the wheel of the last commit: what lies in the folder may be of another one."""
    return wheel.build_twice(output)


@cache
def wheels(output: Path) -> Path:
    """Return the wheelhouse, with the project's own wheel."""
    wheelhouse.fill(output / "wheelhouse", wheelhouse.EXTRAS, built(output))
    return output / "wheelhouse"


def make(part: str, output: Path) -> None:
    """Make one part. Raises ReleaseError."""
    seconds = wheel.commit_seconds()
    if part == "wheel":
        built(output)
    elif part == "sbom":
        when = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        every = wheelhouse.EXTRAS
        (output / f"koord-{version()}.cdx.json").write_text(bill(version(), locked(every), every, when))
    elif part == "wheelhouse":
        wheelhouse.check(wheels(output), version())
    elif part == "deb":
        with programs(output) as (made, folder):
            root = folder / "root"
            debian.stage(made, root)
            debian.pack(root, output, version(), seconds)
    else:
        make_image(output, seconds, part.partition("-")[2])


@contextmanager
def programs(output: Path) -> Iterator[tuple[Path, Path]]:
    """A virtual environment of all programs from locked wheels, and a folder that is removed after use."""
    with tempfile.TemporaryDirectory(prefix="koord-programs-") as folder:
        listed = "".join(pin.line for pin in locked(EXTRAS))
        yield debian.environment(wheels(output), built(output), listed, Path(folder)), Path(folder)


def make_image(output: Path, seconds: int, variant: str) -> None:
    """Build the image twice from the same packages, and compare. Raises ReleaseError where the two differ."""
    sections = ["image", *([variant] if variant else [])]
    archives = image.download(image.packages(sections), output / f"debian-packages{variant and '-' + variant}")
    digests = []
    for turn in range(2):
        with programs(output) as (made, folder):
            path = output if turn == 0 else folder / "again"
            path.mkdir(exist_ok=True)
            tar = image.build(path, made, archives, folder / "image", version(), seconds, variant)
            digests.append(wheel.sha256(tar))
    if len(set(digests)) != 1:
        raise wheel.ReleaseError("two builds of the image differ; compare their layers with: diffoscope")


def released(output: Path) -> list[Path]:
    """Return the files of this version, those of the wheelhouse included; earlier versions may lie beside them."""
    own = (path for path in output.iterdir() if path.is_file() and version() in path.name)
    return sorted([*own, *(output / "wheelhouse").glob("*.whl")])


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice([*PARTS, "all"]))
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), default=ROOT / "dist", show_default="dist")
@click.option("--allow-dirty", is_flag=True, help="Release the last commit although the tree has changes.")
@click.option("--lock", is_flag=True, help="Only write deploy/node.lock, after a change of requirements.lock.")
def main(parts: tuple[str, ...], output: Path, allow_dirty: bool, lock: bool) -> None:
    """Make wheel and images (twice, compared), bill of materials, wheelhouse, Debian package, and SHA256SUMS."""
    if lock:
        NODE_LOCK.write_text(node_lock())
        return
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
    files = released(output)
    (output / "SHA256SUMS").write_text("".join(f"{wheel.sha256(path)}  {path.relative_to(output)}\n" for path in files))
    for path in files:
        if path.parent == output:
            click.echo(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
