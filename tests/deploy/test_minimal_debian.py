"""A minimal Debian, made by mmdebstrap: package and wheelhouse installed, run, removed on 12, BCC where the kernel has
no BTF; README's commands.

Outside the usual runs: KOORD_DIST=dist, a folder that `python -m deploy.release wheelhouse deb` filled,
asks for it, as root; it takes some minutes and 5 GB of the temporary directory. KOORD_DEBIAN_FILES names files of this
machine that the system is to have too, such as those that pip is configured by.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from deploy.release import debian
from tests.deploy.charts import ROOT
from tests.docs.pages import blocks
from tests.waiting import PATIENCE, alive, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "DEBIAN_FRONTEND": "noninteractive",
    "LC_ALL": "C.UTF-8",
    "HOME": "/root",
}
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PROMISED_SECONDS = 600.0
"""README's ten minutes at most for `make run`."""
APT = ("apt-get", "--yes", "--quiet", "--no-install-recommends")


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
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=ENVIRONMENT)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
        return done.stdout

    @contextmanager
    def begun(self, command: str, log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a shell command in its /srv/koord on this machine's kernel, processes, cgroups and network."""
        binds = "".join(f' && mount --rbind /{name} "$0/{name}"' for name in ("proc", "sys", "dev"))
        enter = f'true{binds} && exec chroot "$0" sh -c "cd /srv/koord && exec $1"'
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        # A shell that began the tests in the background had them ignore SIGINT, and so would what they begin.
        words = ["env", "--default-signal=INT", "unshare", "--mount", "sh", "-c", enter, str(self.root), command]
        with log.open("wb") as stream:
            process = subprocess.Popen(
                words, stdout=stream, stderr=stream, env=ENVIRONMENT | pip | environment, start_new_session=True
            )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def plain(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """A suite's system as it comes, with the lists of its packages; made once."""
    folder = tmp_path_factory.mktemp("plain")

    @cache
    def system(suite: str) -> Path:
        root = folder / suite
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", suite, str(root)], check=True)
        for name in ("/etc/resolv.conf", *os.environ.get("KOORD_DEBIAN_FILES", "").split()):
            place = root / name.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(name, place)
        # mmdebstrap leaves no lists behind.
        Debian(root).run("apt-get", "--quiet", "update", online=True)
        return root

    yield system
    shutil.rmtree(folder)


@pytest.fixture
def minimal(request: pytest.FixtureRequest, plain: Callable[[str], Path], tmp_path: Path) -> Iterator[Debian]:
    root = tmp_path / "debian"
    subprocess.run(["cp", "--archive", plain(getattr(request, "param", "bookworm")), root], check=True)
    yield Debian(root)
    shutil.rmtree(root)


def test_the_package_installs_runs_and_leaves_nothing(minimal: Debian, made: Path) -> None:
    (package,) = made.glob(f"koord_{VERSION}_*.deb")
    shutil.copy2(package, minimal.root / "tmp")
    before = {path.name for path in minimal.root.joinpath("usr/bin").iterdir()}
    minimal.run(*APT, "install", f"/tmp/{package.name}", online=True)
    for name in debian.PROGRAMS:
        assert "Usage:" in minimal.run(name, "--help"), name
    assert VERSION in minimal.run("koordlet", "--version")
    minimal.run("koordlet", "run", "--check-config", "--config", "/etc/koord/koordlet.toml")
    assert minimal.run("dpkg", "--verify", "koord") == ""
    print(minimal.run("dpkg-query", "-W", "-f", "koord: ${Installed-Size} KiB installed\n", "koord"))
    minimal.run(*APT, "purge", "koord")
    left = [path for path in debian.PROGRAMS if (minimal.root / "usr/bin" / path).is_symlink()]
    assert not left
    for name in ("etc/koord", "etc/default/koordlet", "var/lib/koord", "var/log/koord", "usr/lib/koord"):
        assert not (minimal.root / name).exists(), name
    assert before <= {path.name for path in minimal.root.joinpath("usr/bin").iterdir()}


def test_the_wheelhouse_needs_no_network(minimal: Debian, made: Path) -> None:
    minimal.run(*APT, "install", "python3-venv", online=True)
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


def test_pipx_installs_from_the_wheelhouse_without_a_network(minimal: Debian, made: Path) -> None:
    minimal.run(*APT, "install", "pipx", "python3-venv", online=True)
    shutil.copytree(made / "wheelhouse", minimal.root / "dist/wheelhouse")
    (command,) = (
        line
        for block in blocks()
        if block.page.name == "deploying.md"
        for line in block.text.splitlines()
        if line.startswith("pipx install")
    )
    minimal.run("sh", "-c", f"cd / && {command}")
    assert VERSION in minimal.run("/root/.local/bin/koordlet", "--version")
    assert "Usage:" in minimal.run("/root/.local/bin/koord-manager", "--help")


def test_a_kernel_without_btf_gets_bcc_and_its_headers(minimal: Debian) -> None:
    """As on Debian's own kernel with its BTF hidden. What BCC then measures: tests/kernel/test_bcc.py in a guest."""
    (release,) = re.findall(r"Depends: linux-headers-(\S+)", minimal.run("apt-cache", "depends", "linux-headers-amd64"))
    named = minimal.root / "usr/sbin/uname"
    named.write_text(f"#!/bin/sh\necho {release}\n")
    named.chmod(0o755)
    shutil.copytree(ROOT / "deploy", minimal.root / "srv/koord/deploy")
    told = minimal.run("env", "KOORD_BTF=/none", "/srv/koord/deploy/provision.sh", "run", online=True)
    print(told.strip().splitlines()[0])
    assert minimal.run("/usr/bin/python3", "-c", "from bcc import BPF; print(BPF.__name__)").strip() == "BPF"
    assert (minimal.root / f"usr/src/linux-headers-{release}/Makefile").is_file()


@pytest.mark.parametrize("minimal", ["bookworm", "trixie"], indirect=True)
def test_the_two_commands_of_the_readme(minimal: Debian, tmp_path: Path) -> None:
    """`make run` as it stands, and `make test` with a part of the tests."""
    (listed,) = (block.text for block in blocks() if block.page.name == "README.md" and "make test" in block.text)
    run, test = (line.partition("#")[0].strip() for line in listed.strip().splitlines())
    minimal.run(*APT, "install", "git", "make", online=True)
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, minimal.root / "srv/koord"], check=True)
    log, began = tmp_path / "log", time.monotonic()
    with minimal.begun(run, log) as process:
        wait_for(
            lambda: "metrics on http" in log.read_text(),
            PROMISED_SECONDS,
            interval_seconds=0.5,
            check=alive(process, log),
        )
        served = time.monotonic() - began
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
    print(f"{run}: serves after {served:.0f} s; ends with: {log.read_text().strip().splitlines()[-1]}")
    assert served < PROMISED_SECONDS * PATIENCE
    began = time.monotonic()
    with minimal.begun(test, log, PYTEST_ADDOPTS="tests/api tests/kernel/test_net.py") as process:
        status = process.wait(1200 * PATIENCE)
    text = log.read_text()
    assert status == 0, text[-3000:]
    summaries = re.findall(r"=+ (.*\bpassed\b.*?) =+", text)
    print(f"{test}, part of it: {time.monotonic() - began:.0f} s; {'; '.join(summaries)}")
    assert len(summaries) == 2, "tests of the running kernel, then the others"
