"""The image's recipe: what it copies exists, and its packages are those of every other installation."""

import re
import tomllib

from tests.deploy.charts import ROOT, container_image, one

RECIPE = (ROOT / "deploy" / "Containerfile").read_text()
INSTRUCTIONS = [
    line.split(maxsplit=1)
    for line in RECIPE.replace("\\\n", " ").splitlines()
    if line.strip() and not line.startswith("#")
]
KNOWN = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "CMD"}


def test_every_instruction_is_known_and_every_base_has_a_version() -> None:
    assert {name for name, _ in INSTRUCTIONS} <= KNOWN
    stages = [rest.split() for name, rest in INSTRUCTIONS if name == "FROM"]
    named = {words[2] for words in stages if len(words) == 3}
    (base,) = (rest for name, rest in INSTRUCTIONS if name == "ARG")
    assert re.fullmatch(r"BASE=debian:\d+-slim", base)
    assert all(words[0] in {*named, "${BASE}"} for words in stages)
    assert stages[-1] == ["run"], "what is built without a target has no compiler in it"


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    copied = [rest.split()[:-1] for name, rest in INSTRUCTIONS if name == "COPY" and not rest.startswith("--from=")]
    sources = {source for sources in copied for source in sources}
    assert not {source for source in sources if not (ROOT / source).exists()}
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert sources == allowed


def test_every_package_of_the_distribution_is_copied() -> None:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    copied = {rest.split()[0] for name, rest in INSTRUCTIONS if name == "COPY"}
    assert {name.removesuffix("*") for name in found} <= copied


def test_system_packages_come_from_the_provisioning_script() -> None:
    runs = [rest for name, rest in INSTRUCTIONS if name == "RUN"]
    assert not [run for run in runs if "apt-get" in run]
    assert sum("deploy/provision.sh" in run for run in runs) == 3


def test_python_packages_come_by_their_hashes() -> None:
    installing = [
        part for name, rest in INSTRUCTIONS if name == "RUN" for part in rest.split("&&") if "pip install" in part
    ]
    assert len(installing) == 2
    assert all("--require-hashes" in part or {"--no-deps", "--no-index"} <= set(part.split()) for part in installing)


def test_each_stage_installs_sections_that_there_are() -> None:
    sections = set(re.findall(r"^\[(\w+)\]$", (ROOT / "deploy" / "packages.txt").read_text(), re.MULTILINE))
    for _name, rest in (each for each in INSTRUCTIONS if each[0] == "RUN"):
        if found := re.match(r"deploy/provision\.sh ([\w ]+)", rest):
            assert set(found[1].split()) <= sections


def test_the_chart_names_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert container_image(one("DaemonSet")) == f"koord/koord:{version}"
    assert f"-t koord/koord:{version} " in RECIPE
