"""deploy/Containerfile built by buildah, without daemon and registry, on a base of Debian's own packages.

Outside the usual runs: KOORD_BUILDAH=1 asks for it, as root; it takes ten minutes and 4 GB of the temporary directory.
KOORD_BUILDAH_OPTIONS has further options of `buildah build`, such as --volume for what pip is configured by.
"""

import os
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from probes.build import TARGETS
from tests.deploy.charts import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

PROGRAMS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
BASE = "localhost/debian:12"
STAGES = {"run": "", "bcc": "bcc"}
"""Stage to the extra check of it."""


class Buildah:
    """buildah with storage of its own."""

    def __init__(self, folder: Path) -> None:
        self._command = ["buildah", f"--root={folder}/storage", f"--runroot={folder}/run"]

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run([*self._command, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
        assert done.returncode == 0, f"buildah {arguments[0]}: {done.stderr[-3000:]}"
        return done.stdout.strip()


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    """Storage that has the base."""
    if not os.environ.get("KOORD_BUILDAH"):
        pytest.skip("KOORD_BUILDAH is not set: the build takes ten minutes")
    missing = [each for each in ("buildah", "mmdebstrap") if shutil.which(each) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {' '.join(missing) or 'nothing more'}: deploy/provision.sh containers")
    folder = tmp_path_factory.mktemp("buildah")
    tree = folder / "base.tar"
    subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "bookworm", str(tree)], check=True)
    built = Buildah(folder)
    container = built("from", "scratch")
    built("add", "--quiet", container, str(tree), "/")
    built("commit", "--quiet", "--rm", container, BASE)
    tree.unlink()
    yield built
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("stage", STAGES)
def test_the_recipe_makes_an_image_whose_programs_start(buildah: Buildah, stage: str, tmp_path: Path) -> None:
    options = ["--isolation=chroot", "--layers", f"--build-arg=BASE={BASE}", f"--target={stage}"]
    options += shlex.split(os.environ.get("KOORD_BUILDAH_OPTIONS", ""))
    image = f"localhost/koord:{stage}"
    buildah("build", *options, "--file=deploy/Containerfile", f"--tag={image}", ".")
    container = buildah("from", image)
    try:
        for name in PROGRAMS:
            said = buildah("run", "--isolation=chroot", "--user=65532:65532", container, name, "--help")
            assert "Usage:" in said, name
        # The agent finds its objects, and compilers and pip stay in the stage that built.
        listing = (
            "import pathlib, probes; print(len(list(pathlib.Path(probes.__file__).parent.glob('objects/*/*.bpf.o'))))"
        )
        sources = len(list((ROOT / "probes" / "bpf").glob("*.bpf.c")))
        objects = buildah("run", "--isolation=chroot", container, "/opt/venv/bin/python", "-c", listing)
        assert int(objects) == sources * len(TARGETS)
        gone = "import shutil; print([each for each in ('clang-14', 'gcc', 'make', 'pip') if shutil.which(each)])"
        assert buildah("run", "--isolation=chroot", container, "/opt/venv/bin/python", "-c", gone) == "[]"
        if STAGES[stage]:
            compiling = (
                "import sys; sys.path.append('/usr/lib/python3/dist-packages'); import bcc; print(bcc.__version__)"
            )
            print(f"BCC {buildah('run', '--isolation=chroot', container, '/usr/bin/python3', '-c', compiling)}")
    finally:
        buildah("rm", container)
    archive = tmp_path / "image.tar"
    buildah("push", "--quiet", image, f"oci-archive:{archive}")
    print(f"{stage}: {archive.stat().st_size / 1e6:.1f} MB")
