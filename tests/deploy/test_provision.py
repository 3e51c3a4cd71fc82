"""The provisioning script, beside stand-ins for the programs of the distribution that it calls."""

import os
import platform
import subprocess
from pathlib import Path

import pytest

from tests.deploy.charts import ROOT

SCRIPT = ROOT / "deploy" / "provision.sh"
HEADERS = f"linux-headers-{platform.release()}"
FOREIGN = "#!/bin/sh\n# of the image\nexit 101\n"
ASKED = "redis-server nginx.service prometheus.service iperf3 ssh cron.service systemd-timesyncd nginx-proxy"
"""Services that packages would start: by script or by unit, as `invoke-rc.d` and `deb-systemd-invoke` name them."""
INSTALL = f"""[ ! -e "$KOORD_POLICY" ] || for service in {ASKED}; do
  "$KOORD_POLICY" "$service" start
  echo "$service $?" >>"$FOLDER/policies"
done"""
STANDINS = {
    "dpkg-query": 'for last; do :; done; grep -qx "$last" "$FOLDER/installed" && echo installed',
    # As apt's: a package that others provide is known by its name alone.
    "apt-cache": 'for last; do :; done; grep -x "$last" "$FOLDER/lists" || grep -qx "$last" "$FOLDER/provided"',
    "apt-get": 'echo "$*" >>"$FOLDER/apt"; [ "$1" != update ] || cp "$FOLDER/offered" "$FOLDER/lists"'
    f'\n[ "$1" != install ] || {{ {INSTALL}; }}',
    "id": "echo 0",
    "systemctl": "true",
}


class Distribution:
    """Debian as the script sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.policy = folder / "policy-rc.d"
        (folder / "bin").mkdir()
        for name, text in STANDINS.items():
            path = folder / "bin" / name
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
        self.has(installed=(), offered=())

    def has(self, *, installed: tuple[str, ...], offered: tuple[str, ...], provided: tuple[str, ...] = ()) -> None:
        """Set what is installed, what else apt knows once it has updated its lists, and what others provide."""
        (self.folder / "lists").write_text("")
        (self.folder / "provided").write_text("".join(f"{name}\n" for name in provided))
        (self.folder / "installed").write_text("".join(f"{name}\n" for name in installed))
        (self.folder / "offered").write_text("".join(f"{name}\n" for name in offered))

    def run(self, *sections: str, btf: bool = True) -> set[str]:
        """Run the script and return the packages that apt was asked for."""
        known = self.folder / "btf"
        known.unlink(missing_ok=True)
        if btf:
            known.touch()
        own = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "FOLDER": str(self.folder), "KOORD_BTF": str(known)}
        own["KOORD_POLICY"] = str(self.policy)
        done = subprocess.run([SCRIPT, *sections], capture_output=True, text=True, env=os.environ | own, check=False)
        assert done.returncode == 0, done.stderr
        asked = self.folder / "apt"
        lines = asked.read_text().splitlines() if asked.exists() else []
        asked.unlink(missing_ok=True)
        assert sum(line.startswith("update") for line in lines) <= 1
        return {word for line in lines if line.startswith("install") for word in line.split()[1:] if word[0] != "-"}

    def barred(self) -> set[str]:
        """Return the services that were not allowed to start during the installations so far."""
        answers = dict(line.split() for line in (self.folder / "policies").read_text().splitlines())
        assert answers.keys() == set(ASKED.split())
        assert set(answers.values()) <= {"0", "101"}
        return {service for service, answer in answers.items() if answer == "101"}


@pytest.fixture
def distribution(tmp_path: Path) -> Distribution:
    return Distribution(tmp_path)


def test_what_is_missing_of_the_sections_is_installed(distribution: Distribution) -> None:
    wanted = distribution.run("build", "run")
    assert {"clang-14", "libbpf1", "python3-venv"} <= wanted
    assert not {"fio", "qemu-system-x86", "python3-bpfcc"} & wanted
    distribution.has(installed=tuple(wanted - {"kmod"}), offered=())
    assert distribution.run("build", "run") == {"kmod"}
    distribution.has(installed=tuple(wanted), offered=())
    assert distribution.run("build", "run") == set()


def test_the_compiler_is_the_one_that_the_distribution_has(distribution: Distribution) -> None:
    distribution.has(installed=(), offered=("clang-14", "llvm-14", "clang", "llvm"))
    assert {"clang-14", "llvm-14"} <= distribution.run("build")
    distribution.has(installed=(), offered=("clang", "llvm"))
    wanted = distribution.run("build")
    assert {"clang", "llvm"} <= wanted
    assert not {"clang-14", "llvm-14"} & wanted
    distribution.has(installed=(), offered=("clang", "llvm"), provided=("clang-14",))
    assert {"clang", "llvm"} <= distribution.run("build"), "apt has no package of a name that others provide"
    distribution.has(installed=("clang-14", "llvm"), offered=("clang", "llvm"))
    assert not {"clang", "llvm", "clang-14", "llvm-14"} & distribution.run("build")


def test_a_kernel_without_btf_gets_bcc_and_the_headers_that_apt_has(distribution: Distribution) -> None:
    assert "python3-bpfcc" in distribution.run("build", "run", btf=False)
    assert HEADERS not in distribution.run("build", "run", btf=False), "apt does not know them"
    distribution.has(installed=(), offered=(HEADERS,))
    assert {"python3-bpfcc", HEADERS} <= distribution.run("build", "run", btf=False)
    assert HEADERS not in distribution.run("build", "run")
    distribution.has(installed=(HEADERS,), offered=(HEADERS,))
    assert HEADERS not in distribution.run("build", "run", btf=False)


def test_an_image_has_no_use_for_the_headers_of_the_machine_that_builds_it(distribution: Distribution) -> None:
    distribution.has(installed=(), offered=(HEADERS,))
    assert distribution.run("image", btf=False) == distribution.run("image")
    assert HEADERS not in distribution.run("bcc", btf=False)


LOAD_GENERATORS = {"redis-server", "nginx.service", "prometheus.service", "iperf3"}


def test_only_the_load_generators_do_not_start(distribution: Distribution) -> None:
    distribution.run("test")
    assert distribution.barred() == LOAD_GENERATORS
    assert not distribution.policy.exists()


def test_a_policy_that_a_killed_run_left_is_replaced(distribution: Distribution) -> None:
    kept = distribution.folder / "kept"
    (distribution.folder / "bin" / "apt-get").write_text(f'#!/bin/sh\n[ "$1" = update ] || cp "$KOORD_POLICY" {kept}\n')
    distribution.run("test")
    distribution.policy.write_text(kept.read_text().replace("nginx", "older"))
    kept.unlink()
    distribution.run("test")
    assert "nginx" in kept.read_text()
    assert not distribution.policy.exists()


def test_a_policy_of_another_origin_stays(distribution: Distribution) -> None:
    distribution.policy.write_text(FOREIGN)
    distribution.policy.chmod(0o755)
    distribution.run("test")
    assert distribution.policy.read_text() == FOREIGN
    assert distribution.barred() == set(ASKED.split())


def test_without_sections_it_says_how_it_is_used() -> None:
    done = subprocess.run([SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, "usage:" in done.stderr) == (2, True)
