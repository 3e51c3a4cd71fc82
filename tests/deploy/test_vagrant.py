"""The Vagrant machine as far as it can be told without a hypervisor: its file, its script, and what it installs."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordlet.config import load_settings
from tests.deploy.charts import ROOT, container_image, documents, one

FOLDER = ROOT / "deploy" / "vagrant"
SCRIPT = FOLDER / "provision.sh"
VALUES: dict[str, Any] = yaml.safe_load((FOLDER / "values.yaml").read_text())
PROTECTED = {each["kind"]: each for each in yaml.safe_load_all((FOLDER / "protected.yaml").read_text())}
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.mark.parametrize("kubernetes", ["", "1"], ids=["unit", "cluster"])
def test_vagrant_takes_the_file(kubernetes: str, tmp_path: Path) -> None:
    if shutil.which("vagrant") is None:
        pytest.skip("no vagrant here: install the package")
    own = {"KUBERNETES": kubernetes, "VAGRANT_HOME": str(tmp_path), "VAGRANT_DOTFILE_PATH": str(tmp_path / "dot")}
    command = ["vagrant", "validate", "--ignore-provider"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "validated successfully" in done.stdout


def test_the_file_runs_the_script_and_leaves_out_what_is_built() -> None:
    text = (ROOT / "Vagrantfile").read_text()
    (called,) = re.findall(r'inline: "/srv/koord/(\S+)', text)
    assert ROOT / called == SCRIPT
    assert os.access(SCRIPT, os.X_OK)
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    (excluded,) = re.findall(r"rsync__exclude: \[(.*)\]", text)
    assert {name.strip('" /') for name in excluded.split(",")} <= ignored


def test_the_script_is_bash_and_refuses_unknown_words() -> None:
    assert subprocess.run(["bash", "-n", SCRIPT], check=False).returncode == 0
    done = subprocess.run([SCRIPT, "docker"], capture_output=True, text=True, check=False)
    assert (done.returncode, "usage:" in done.stderr) == (2, True)


STANDINS = {
    "sed": '[ "$1" = -i ] || exec /usr/bin/sed "$@"',
    "uname": "echo x86_64",
    "curl": """case "$*" in *-o*) echo "$3" >>"$FOLDER/downloads" ;; *) echo "00  k3s" ;; esac""",
    "sha256sum": "cat >/dev/null",
    "k3s": 'echo "$*" >>"$FOLDER/k3s-calls"; case "$*" in *" node "*) [ -e "$FOLDER/ready" ] ;; esac',
    "journalctl": "echo the disk is full",
} | dict.fromkeys(("apt-get", "git", "install", "make", "systemctl", "update-grub"), "true")


class Machine:
    """A machine of Vagrant as the script for it sees it, with a tree of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tree, self.temporary = folder, folder / "tree", folder / "temporary"
        for name, text in STANDINS.items():
            self._program(folder / "bin" / name, text)
        self._program(self.tree / ".venv" / "bin" / "python", "true")
        script = self.tree / SCRIPT.relative_to(ROOT)
        script.parent.mkdir(parents=True)
        shutil.copy(SCRIPT, script)
        shutil.copy(ROOT / "pyproject.toml", self.tree)
        self.temporary.mkdir()

    def _program(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def provision(self, *, ready: bool, seconds: int = 30) -> subprocess.CompletedProcess[str]:
        """Run the script for a cluster whose node gets ready or not in the seconds that it has."""
        if ready:
            (self.folder / "ready").touch()
        own = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "FOLDER": str(self.folder)}
        own |= {"TMPDIR": str(self.temporary), "READY_SECONDS": str(seconds)}
        command = [self.tree / SCRIPT.relative_to(ROOT), "kubernetes"]
        return subprocess.run(
            command, capture_output=True, text=True, env=os.environ | own, timeout=seconds + 15, check=False
        )

    def calls(self) -> list[str]:
        """Return what k3s was called with."""
        return (self.folder / "k3s-calls").read_text().splitlines()


def test_the_cluster_takes_the_image_of_this_version_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (machine.tree / "dist").mkdir()
    for version in (VERSION, "0.0.9"):
        (machine.tree / "dist" / f"koord-{version}.oci.tar").touch()
    done = machine.provision(ready=True)
    assert done.returncode == 0, done.stderr
    (imported,) = (call for call in machine.calls() if " images import " in call)
    assert imported.split()[-1] == str(machine.tree / "dist" / f"koord-{VERSION}.oci.tar")
    assert len(imported.split()) == 6


def test_what_is_downloaded_lies_in_a_folder_of_its_own_which_goes(tmp_path: Path) -> None:
    if Path("/usr/local/bin/k3s").exists():
        pytest.skip("k3s is installed here: nothing is downloaded")
    machine = Machine(tmp_path)
    assert machine.provision(ready=True).returncode == 0
    (target,) = (machine.folder / "downloads").read_text().splitlines()
    assert Path(target).parent.parent == machine.temporary
    assert list(machine.temporary.iterdir()) == []


def test_a_node_that_does_not_get_ready_ends_it_with_the_log(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    done = machine.provision(ready=False, seconds=2)
    assert done.returncode == 1
    assert "not ready after 2 s" in done.stderr
    assert "the disk is full" in done.stderr
    assert all(" wait " in f" {call} " for call in machine.calls())


def test_the_agent_of_the_cluster_acts_and_takes_its_settings(tmp_path: Path) -> None:
    agent = one("DaemonSet", VALUES)["spec"]["template"]["spec"]
    assert "--enforce" in agent["containers"][0]["args"]
    mounted = {mount["mountPath"] for mount in agent["containers"][0]["volumeMounts"]}
    (settings,) = (each for each in documents(VALUES) if each["kind"] == "ConfigMap")
    path = tmp_path / "koordlet.toml"
    path.write_text(settings["data"]["koordlet.toml"])
    found = load_settings(path)
    assert str(Path(found.kubelet.cri_socket).parent) in mounted
    assert found.enforcer.strategies == ("response",)


@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
def test_service_and_batch_work_are_of_the_image_and_of_their_classes(kind: str) -> None:
    wanted = PROTECTED[kind]
    template = wanted if kind == "Pod" else wanted["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert container["image"] == container_image(one("DaemonSet")) == f"koord/koord:{VERSION}"
    assert template["metadata"]["labels"]["koordinator.sh/qosClass"] == ("LS" if kind == "Pod" else "BE")
    # What runs is Python, for the image has no shell.
    interpreter, option, program = container["command"]
    assert (interpreter, option[-1]) == ("python3", "c")
    compile(program, kind, "exec")
