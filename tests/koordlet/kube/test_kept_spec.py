"""The kept NodeSLO: back as it was, and nothing that is torn, another node's, or others' to write."""

import os
import threading
from pathlib import Path

import pytest

from koordlet.kube.kept_spec import KeptSpec

SPEC = {"cpuBurstStrategy": {"policy": "auto"}}


def kept(directory: Path, node: str = "n1") -> KeptSpec:
    made = KeptSpec(directory, node)
    made.keep(SPEC, 7)
    made.wait(30.0)
    return made


def test_it_comes_back_and_can_be_replaced_and_removed(tmp_path: Path) -> None:
    found = kept(tmp_path / "state")
    assert found.path.stat().st_mode & 0o777 == 0o600
    assert KeptSpec(tmp_path / "state", "n1").load() == SPEC
    found.keep({}, 8)
    found.wait(30.0)
    assert found.load() == {}
    found.keep(None)
    found.wait(30.0)
    assert found.load() is None
    assert list((tmp_path / "state").iterdir()) == []


def test_beside_a_disk_that_hangs_the_newest_is_kept(tmp_path: Path) -> None:
    found = kept(tmp_path)
    with found._lock:  # as while an earlier one is written
        for number in range(20):
            found.keep({"number": number}, number)
        threads = [one for one in threading.enumerate() if one.name == "kept-spec"]
        assert len(threads) == 1
    found.wait(30.0)
    assert found.load() == {"number": 19}


def test_torn_at_any_byte_it_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = kept(tmp_path)
    content = found.path.read_bytes()
    for length in range(len(content)):
        found.path.write_bytes(content[:length])
        assert found.load() is None
    found.path.write_bytes(content.replace(b"auto", b"none"))
    assert found.load() is None
    assert "is not followed" in caplog.text


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda path: path.chmod(0o666), id="others-may-write"),
        pytest.param(lambda path: os.chown(path, 1234, 0), id="another-owner"),
        pytest.param(lambda path: (path.rename(f"{path}.b"), path.symlink_to(f"{path}.b")), id="link"),
        pytest.param(lambda path: (path.unlink(), os.mkfifo(path, 0o600)), id="fifo"),
        pytest.param(lambda path: path.write_bytes(b"\xff" * 100), id="bytes"),
        pytest.param(lambda path: path.write_bytes(b"0" * (5 << 20)), id="too-large"),
    ],
)
def test_what_is_not_surely_ours_is_not_followed(tmp_path: Path, spoil: object) -> None:
    if os.geteuid() != 0:
        pytest.skip("owners are changed by root only")
    found = kept(tmp_path)
    spoil(found.path)  # type: ignore[operator]
    assert found.load() is None


def test_another_node_s_is_not_followed(tmp_path: Path) -> None:
    kept(tmp_path, "n2")
    assert KeptSpec(tmp_path, "n1").load() is None


def test_a_disk_that_refuses_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    found = KeptSpec(tmp_path / "file", "n1")
    for _ in range(3):
        found.keep(SPEC, 1)
        found.wait(30.0)
    assert caplog.text.count("is not kept") == 1
    assert found.load() is None
