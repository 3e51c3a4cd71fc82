"""The Debian package and the wheelhouse on a minimal Debian 12, made by mmdebstrap: installed, run, removed.

Outside the usual runs: KOORD_DIST=dist, a folder that `python -m deploy.release wheelhouse deb` filled,
asks for it, as root; it takes some minutes and 1 GB of the temporary directory.
"""

import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.release import debian
from tests.deploy.charts import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture(scope="module")
def made() -> Path:
    """The folder of the release."""
    folder = os.environ.get("KOORD_DIST", "")
    if not folder:
        pytest.skip("KOORD_DIST is not set: fill a folder by `python -m deploy.release wheelhouse deb`")
    if shutil.which("mmdebstrap") is None or os.geteuid() != 0:
        pytest.skip("needs root and mmdebstrap: deploy/provision.sh containers")
    return Path(folder).resolve()


class Debian:
    """A tree with Debian in it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *command: str, online: bool = False) -> str:
        """Run a command in it, without a network unless it is to have one."""
        words = ["unshare", "--mount", "--fork", "--pid", "--kill-child", *([] if online else ["--net"])]
        words += ["sh", "-c", 'mount -t proc proc "$0/proc"; exec chroot "$0" "$@"', str(self.root), *command]
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "DEBIAN_FRONTEND": "noninteractive",
            "LC_ALL": "C.UTF-8",
        }
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
        return done.stdout


@pytest.fixture
def minimal(made: Path, tmp_path: Path) -> Iterator[Debian]:
    root = tmp_path / "debian"
    subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "bookworm", str(root)], check=True)
    shutil.copy2("/etc/resolv.conf", root / "etc/resolv.conf")
    yield Debian(root)
    shutil.rmtree(root)


def test_the_package_installs_runs_and_leaves_nothing(minimal: Debian, made: Path) -> None:
    (package,) = made.glob(f"koord_{VERSION}_*.deb")
    shutil.copy2(package, minimal.root / "tmp")
    before = {path.name for path in minimal.root.joinpath("usr/bin").iterdir()}
    apt = ["apt-get", "--yes", "--quiet", "--no-install-recommends"]
    minimal.run(*apt, "install", f"/tmp/{package.name}", online=True)
    for name in debian.PROGRAMS:
        assert "Usage:" in minimal.run(name, "--help"), name
    assert VERSION in minimal.run("koordlet", "--version")
    minimal.run("koordlet", "run", "--check-config", "--config", "/etc/koord/koordlet.toml")
    assert minimal.run("dpkg", "--verify", "koord") == ""
    print(minimal.run("dpkg-query", "-W", "-f", "koord: ${Installed-Size} KiB installed\n", "koord"))
    minimal.run(*apt, "purge", "koord")
    left = [path for path in debian.PROGRAMS if (minimal.root / "usr/bin" / path).is_symlink()]
    assert not left
    for name in ("etc/koord", "etc/default/koordlet", "var/lib/koord", "var/log/koord", "usr/lib/koord"):
        assert not (minimal.root / name).exists(), name
    assert before <= {path.name for path in minimal.root.joinpath("usr/bin").iterdir()}


def test_the_wheelhouse_needs_no_network(minimal: Debian, made: Path) -> None:
    minimal.run("apt-get", "--yes", "--quiet", "--no-install-recommends", "install", "python3-venv", online=True)
    shutil.copytree(made / "wheelhouse", minimal.root / "srv/wheelhouse")
    for extra in ("", "[node]", "[cluster]", "[analysis]", "[all]"):
        place = f"/opt/koord{extra.strip('[]')}"
        minimal.run("python3", "-m", "venv", place)
        offline = ["--quiet", "--no-index", "--find-links", "/srv/wheelhouse"]
        minimal.run(f"{place}/bin/pip", "install", *offline, f"koord{extra}=={VERSION}")
        assert VERSION in minimal.run(f"{place}/bin/koordlet", "--version"), extra
        if extra in ("[node]", "[cluster]", "[all]"):
            assert "Usage:" in minimal.run(f"{place}/bin/koord-manager", "--help"), extra
        minimal.run(f"{place}/bin/pip", "check")
        shutil.rmtree(minimal.root / place.lstrip("/"))
