"""The Debian package: programs in /usr/lib/koord, links in /usr/bin, units, settings in /etc; built by dpkg-deb.

`stage` puts the files together from a directory of programs (a virtual environment made for /usr/lib/koord), `pack`
makes the package of them. Maintainer scripts are deploy/debian/{postinst,prerm,postrm}; they honour DPKG_ROOT.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from deploy.release.locked import ROOT
from deploy.release.wheel import ReleaseError, sha256

HOME = "/usr/lib/koord"
PROGRAMS = (
    "koordlet",
    "koord-runtime-proxy",
    "koord-detector",
    "koord-scheduler",
    "koord-manager",
    "koord-descheduler",
    "koord-yarn-copilot",
    "kubectl-koord",
)
UNITS = ("koordlet.service", "koord-runtime-proxy.service")
SCRIPTS = ("postinst", "prerm", "postrm")
_SOURCES = ROOT / "deploy"
_CONTROL = """\
Package: koord
Version: {version}
Architecture: {architecture}
Maintainer: Koord maintainers <koord@localhost>
Section: admin
Priority: optional
Installed-Size: {kibibytes}
Depends: python3 (>= {python}), python3 (<< {python_after}), libbpf1 (>= 1:1.1) | libbpf1, iproute2, kmod
Recommends: openssl
Suggests: python3-bpfcc
Description: interference detection and node QoS for co-located workloads
 Shows from the running kernel how many seconds each cgroup loses per second, to
 which cause and to which culprit, and, where it is allowed to, quiets the culprit
 and checks that the victim recovered. Contains the node agent with its BPF
 programs, the scheduler, the manager and the descheduler.
 .
 python3-bpfcc serves kernels without BTF.
"""


def stage(programs: Path, root: Path) -> None:
    """Put the files of the package below `root`. Raises ReleaseError where a program is missing."""
    home = root / HOME.lstrip("/")
    home.parent.mkdir(parents=True)
    shutil.copytree(programs, home, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in PROGRAMS:
        if not os.access(home / "bin" / name, os.X_OK):
            raise ReleaseError(f"{programs}/bin/{name} is missing: install koord there with its extras")
        link = root / "usr" / "bin" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../lib/koord/bin/{name}")
    for unit in UNITS:
        text = (_SOURCES / "systemd" / unit).read_text().replace("/usr/local/bin/", "/usr/bin/")
        _write(root / "lib" / "systemd" / "system" / unit, text)
    _write(root / "etc" / "koord" / "koordlet.toml", (_SOURCES / "systemd" / "koordlet.toml").read_text())
    _write(root / "etc" / "default" / "koordlet", 'KOORDLET_FLAGS="--standalone"\n')
    documents = root / "usr" / "share" / "doc" / "koord"
    _write(documents / "copyright", (ROOT / "LICENSE").read_text())
    for name in ("README.md", "CHANGELOG.md", "SECURITY.md"):
        if (ROOT / name).exists():
            _write(documents / name, (ROOT / name).read_text())


def pack(root: Path, output: Path, version: str, seconds: int) -> Path:
    """Make the package of a staged tree, with every file of the given time. Raises ReleaseError."""
    control = root / "DEBIAN"
    control.mkdir()
    for name in SCRIPTS:
        _write(control / name, (_SOURCES / "debian" / name).read_text(), 0o755)
    files = [path for path in sorted(root.rglob("*")) if control not in path.parents and path != control]
    conffiles = [f"/{path.relative_to(root)}" for path in files if path.is_file() and root / "etc" in path.parents]
    _write(control / "conffiles", "".join(f"{name}\n" for name in conffiles))
    sizes = sum(path.stat().st_size for path in files if path.is_file() and not path.is_symlink())
    python, after = _python_of(root)
    text = _CONTROL.format(
        version=version, architecture=architecture(), kibibytes=sizes // 1024 + 1, python=python, python_after=after
    )
    _write(control / "control", text)
    output.mkdir(parents=True, exist_ok=True)
    package = output / f"koord_{version}_{architecture()}.deb"
    for path in [root, *root.rglob("*")]:
        os.utime(path, (seconds, seconds), follow_symlinks=False)
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(seconds)}
    command = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, package]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"dpkg-deb: {done.stderr.strip()}")
    return package


def environment(wheels: Path, wheel: Path, requirements: str, folder: Path) -> Path:
    """Make the virtual environment that `stage` takes, offline from a folder of wheels, as if made at its home.

    `requirements` has a line with hashes for each package. Raises ReleaseError where pip fails.
    """
    made = folder / "environment"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", made], check=True)
    # The wheel by name and digest too: where it is given as a file, pip notes its path in what is made.
    own = "==".join(wheel.name.split("-")[:2])
    listed = folder / "requirements.txt"
    listed.write_text(f"{requirements}{own} --hash=sha256:{sha256(wheel)}\n")
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--disable-pip-version-check", "--require-hashes"]
    places = ["--find-links", str(wheels), "--find-links", str(wheel.parent)]
    pip = [str(ROOT / ".venv" / "bin" / "python"), "-m", "pip", "--python", str(made / "bin" / "python"), "install"]
    done = subprocess.run([*pip, *options, *places, "-r", listed], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"pip: {done.stderr.strip()[-2000:]}")
    for path in (made / "bin").iterdir():
        if path.is_file() and not path.is_symlink():
            start = path.read_bytes()
            path.write_bytes(start.replace(str(made).encode(), HOME.encode()))
    # The digests of these scripts were taken where pip wrote them, in a folder of another name each time.
    for record in made.glob("lib/python3.*/site-packages/*.dist-info/RECORD"):
        lines = record.read_text().splitlines(keepends=True)
        record.write_text("".join(re.sub(r"^(\.\./\.\./\.\./bin/[^,]*),.*", r"\1,,", line) for line in lines))
    settings = made / "pyvenv.cfg"
    settings.write_text(re.sub(r"^command = .*\n", "", settings.read_text(), flags=re.MULTILINE))
    for activate in (made / "bin").glob("[aA]ctivate*"):
        activate.unlink()
    return made


def architecture() -> str:
    """Return Debian's name of this machine's architecture, as amd64."""
    return _run("dpkg", "--print-architecture").strip()


def _python_of(root: Path) -> tuple[str, str]:
    (packages,) = (root / HOME.lstrip("/") / "lib").glob("python3.*")
    minor = int(packages.name.rpartition(".")[2])
    return f"3.{minor}", f"3.{minor + 1}"


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
