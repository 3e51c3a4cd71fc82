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
