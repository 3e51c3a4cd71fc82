"""A release: the lock as pins, licences, bill of materials, a wheel that is the same twice, a package that installs."""

import json
import os
import re
import shutil
import subprocess
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

from deploy.release import debian, wheel, wheelhouse
from deploy.release.__main__ import released
from deploy.release.locked import EXTRAS, NODE_LOCK, ROOT, Pin, closure, locked, node_lock, pins
from deploy.release.sbom import bill, licence_of

HASH = "a" * 64


def test_pins_have_canonical_names_and_sorted_hashes() -> None:
    hashes = "".join(f" \\\n    --hash=sha256:{letter * 64}" for letter in "ba")
    text = f"Some_Package==1.2{hashes}\n    # via koord\nother==3 ; x\n"
    with pytest.raises(ValueError, match="other==3 has no hash"):
        pins(text)
    (pin,) = pins(text.partition("other")[0]).values()
    assert (pin.name, pin.version, pin.hashes) == ("some-package", "1.2", (f"sha256:{HASH}", f"sha256:{'b' * 64}"))
    assert pin.line.count("--hash=") == 2


def test_each_extra_needs_what_it_says_and_all_is_locked() -> None:
    assert "numpy" in closure(())
    assert "kubernetes" not in closure(())
    assert {"kubernetes", "grpcio"} <= set(closure(("cluster", "grpc")))
    every = closure(("analysis", "cluster", "gpu", "grpc"))
    assert {"kubernetes", "grpcio", "duckdb", "matplotlib"} <= set(every)
    assert "pytest" not in every
    assert [pin.name for pin in locked(("analysis", "cluster", "gpu", "grpc"))] == list(every)


def test_a_package_that_is_not_locked_is_named() -> None:
    with pytest.raises(ValueError, match=r"not in requirements\.lock: .*numpy"):
        locked((), lock=f"click==8.1 --hash=sha256:{HASH}\n")


def test_the_lock_of_nodes_is_that_part_of_the_lock() -> None:
    assert NODE_LOCK.read_text() == node_lock(), "run: python -m deploy.release --lock"
    assert {pin.name for pin in locked(EXTRAS)} < pins(NODE_LOCK.read_text()).keys()


def test_a_wheelhouse_has_what_is_locked_and_nothing_else(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}-1-py3-none-any.whl").write_text(name)
    found = {path.name[0]: f"sha256:{wheel.sha256(path)}" for path in tmp_path.iterdir()}
    both = [Pin("a", "1", (found["a"], f"sha256:{HASH}")), Pin("b", "1", (found["b"],))]
    (tmp_path / "koord-0.0-py3-none-any.whl").write_text("of any version: it is replaced")
    assert wheelhouse.is_complete(tmp_path, both)
    assert not wheelhouse.is_complete(tmp_path, [*both, Pin("c", "1", (f"sha256:{HASH}",))]), "one is missing"
    assert not wheelhouse.is_complete(tmp_path, both[:1]), "one is no longer locked"
    (tmp_path / "a-1-py3-none-any.whl").write_text("changed")
    assert not wheelhouse.is_complete(tmp_path, both)


def test_sums_are_of_this_version_alone(tmp_path: Path) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    (tmp_path / "wheelhouse").mkdir()
    for name in (f"koord-{version}.oci.tar", "koord-0.0.0.oci.tar", "SHA256SUMS", "wheelhouse/numpy-2.whl"):
        (tmp_path / name).touch()
    assert [path.name for path in released(tmp_path)] == [f"koord-{version}.oci.tar", "numpy-2.whl"]


def test_the_package_has_every_program_of_the_distribution() -> None:
    assert set(debian.PROGRAMS) == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"].keys()


def test_the_bill_names_every_package_with_its_licence_and_is_the_same_twice() -> None:
    found = locked(("cluster", "grpc", "analysis"))
    text = bill("1.0", found, ("cluster",), "2026-01-01T00:00:00Z")
    assert text == bill("1.0", found, ("cluster",), "2026-01-01T00:00:00Z")
    document = json.loads(text)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    references = {component["bom-ref"] for component in document["components"]}
    assert references == {f"pkg:pypi/{pin.name}@{pin.version}" for pin in found}
    assert all(set(entry["dependsOn"]) <= references for entry in document["dependencies"])
    unlicensed = [component["name"] for component in document["components"] if not component.get("licenses")]
    assert not unlicensed


def test_licences_are_ones_that_an_apache_project_may_depend_on() -> None:
    for pin in locked(("cluster", "grpc", "analysis")):
        licence = licence_of(distribution(pin.name))
        assert licence, pin.name
        choices = licence.split(" OR ")
        assert any("GPL" not in choice.replace("LGPL", "") for choice in choices), f"{pin.name}: {licence}"


@pytest.mark.slow
def test_the_wheel_is_the_same_twice_and_brings_its_data(tmp_path: Path) -> None:
    if not list(wheel.OBJECTS.glob("*/*.bpf.o")):
        pytest.skip("no BPF objects here: make bpf")
    made = wheel.build_twice(tmp_path)
    names = zipfile.ZipFile(made).namelist()
    assert "api/pages/page.css" in names
    assert any(name.startswith("probes/objects/") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "bench/"))]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Stand-ins for the virtual environment."""
    made = tmp_path / "programs"
    (made / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (made / "bin").mkdir()
    for name in debian.PROGRAMS:
        (made / "bin" / name).write_text(f"#!/bin/sh\necho {name}\n")
        (made / "bin" / name).chmod(0o755)
    return made


@pytest.fixture
def package(programs: Path, tmp_path: Path) -> Path:
    if shutil.which("dpkg-deb") is None:
        pytest.skip("no dpkg-deb here")
    root = tmp_path / "root"
    debian.stage(programs, root)
    return debian.pack(root, tmp_path / "out", "1.2.3", 1_700_000_000)


def dpkg(root: Path, *arguments: str) -> str:
    """Run dpkg on another root; maintainer scripts run outside of it and are told."""
    command = ["dpkg", f"--root={root}", "--force-script-chrootless", "--force-depends", "--force-not-root", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_package_has_programs_units_settings_and_scripts(package: Path) -> None:
    contents = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    for name in ("./usr/bin/koordlet -> ../lib/koord/bin/koordlet", "./lib/systemd/system/koordlet.service"):
        assert name in contents
    assert "root/root" in contents
    fields = subprocess.run(["dpkg-deb", "--field", package], capture_output=True, text=True, check=True).stdout
    assert "Version: 1.2.3" in fields
    assert "python3 (>= 3.11), python3 (<< 3.12)" in fields
    assert "Suggests: python3-bpfcc" in fields


def test_the_package_is_the_same_twice(programs: Path, package: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    debian.stage(programs, again)
    assert wheel.sha256(debian.pack(again, tmp_path / "second", "1.2.3", 1_700_000_000)) == wheel.sha256(package)


def tiny_wheel(folder: Path, name: str) -> Path:
    """A wheel of one module, with a program where it is the project's."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    about = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": "def main() -> None: ...\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{each},,\n" for each in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for each, text in files.items():
            archive.writestr(zipfile.ZipInfo(each), text)
    return path


def test_installed_programs_do_not_name_the_folders_that_they_were_made_in(tmp_path: Path) -> None:
    trees = []
    for name in ("a", "b"):
        wheels, work = tmp_path / name / "wheels", tmp_path / name / "work"
        for folder in (wheels, work):
            folder.mkdir(parents=True)
        listed = f"needed==1.0 --hash=sha256:{wheel.sha256(tiny_wheel(wheels, 'needed'))}\n"
        made = debian.environment(wheels, tiny_wheel(tmp_path / name, "koord"), listed, work)
        files = (path for path in made.rglob("*") if path.is_file() and not path.is_symlink())
        trees.append({path.relative_to(made): path.read_bytes() for path in files})
    assert {path.name for path in trees[0]} >= {"koord.py", "needed.py", "koord"}
    assert trees[0].keys() == trees[1].keys()
    assert [path for path, content in trees[0].items() if trees[1][path] != content] == []
    assert [path for path, content in trees[0].items() if str(tmp_path).encode() in content] == []


def test_units_name_the_packages_programs(package: Path, tmp_path: Path) -> None:
    subprocess.run(["dpkg-deb", "--extract", package, tmp_path / "x"], check=True)
    for unit in debian.UNITS:
        text = (tmp_path / "x/lib/systemd/system" / unit).read_text()
        assert "/usr/local" not in text
        assert "/usr/bin/koord" in text


def test_it_installs_keeps_settings_on_removal_and_nothing_on_purge(package: Path, tmp_path: Path) -> None:
    root = tmp_path / "host"
    (root / "var/lib/dpkg/info").mkdir(parents=True)
    (root / "var/lib/dpkg/updates").mkdir()
    (root / "var/lib/dpkg/status").touch()
    dpkg(root, "--install", str(package))
    assert (root / "usr/bin/koordlet").is_symlink()
    assert (root / "usr/lib/koord/bin/koordlet").exists()
    assert (root / "var/lib/koord").stat().st_mode & 0o777 == 0o700
    settings = root / "etc/koord/koordlet.toml"
    settings.write_text("interval_seconds = 2\n")
    (root / "var/lib/koord/baselines.json").write_text("{}")
    (root / "usr/lib/koord/lib/python3.11/site-packages/__pycache__").mkdir()
    dpkg(root, "--remove", "koord")
    assert not (root / "usr/bin/koordlet").exists()
    assert settings.read_text() == "interval_seconds = 2\n"
    assert (root / "var/lib/koord/baselines.json").exists()
    dpkg(root, "--purge", "koord")
    for name in ("etc/koord", "var/lib/koord", "var/log/koord", "usr/lib/koord"):
        assert not (root / name).exists(), name


@pytest.mark.parametrize("name", debian.SCRIPTS)
def test_maintainer_scripts_are_shell(name: str) -> None:
    script = Path(debian.__file__).parents[1] / "debian" / name
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0
    assert "set -e" in script.read_text()


@pytest.mark.parametrize("has_settings", [True, False], ids=["settings", "no-settings"])
@pytest.mark.parametrize("status", [0, 1, None], ids=["restores", "fails", "no-program"])
def test_everything_is_restored_before_the_programs_go(tmp_path: Path, status: int | None, has_settings: bool) -> None:
    """Wherever the journal is; and the package can be removed whatever comes of it."""
    text = (Path(debian.__file__).parents[1] / "debian" / "prerm").read_text()
    text = re.sub(r"/(?=(usr|etc|run|var)/)", f"{tmp_path}/", text)
    program, settings = tmp_path / "usr/bin/koordlet", tmp_path / "etc/koord/koordlet.toml"
    program.parent.mkdir(parents=True)
    settings.parent.mkdir(parents=True)
    if status is not None:
        program.write_text(f'#!/bin/sh\necho "asked: $*"\nexit {status}\n')
        program.chmod(0o755)
    if has_settings:
        settings.write_text('[enforcer]\nstate_dir = "/run/koord/state"\n')
    environment = {name: value for name, value in os.environ.items() if name != "DPKG_ROOT"}
    done = subprocess.run(["sh", "-c", text, "prerm", "remove"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    used = settings if has_settings else "/dev/null"
    assert done.stdout == ("" if status is None else f"asked: restore --all --config {used}\n")
    assert ("not everything was restored" in done.stderr) == (status != 0)


def test_a_missing_program_is_named(programs: Path, tmp_path: Path) -> None:
    (programs / "bin" / "koord-manager").unlink()
    with pytest.raises(wheel.ReleaseError, match="koord-manager is missing"):
        debian.stage(programs, tmp_path / "root")
