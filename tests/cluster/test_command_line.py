"""What the commands share: settings, clients and elections, and refusals that name the remedy."""

from pathlib import Path

import msgspec
import pytest

from cluster.command_line import USAGE_ERROR, Chosen


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """Settings of a program."""

    rate: float = 1.0


def refused(capsys: pytest.CaptureFixture[str], code: int) -> str:
    assert code == USAGE_ERROR
    return capsys.readouterr().err


def test_settings_come_from_the_file_or_are_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("rate = 2.5")
    assert Chosen("p", file).settings(Settings).rate == 2.5
    assert Chosen("p").settings(Settings).rate == 1.0


@pytest.mark.parametrize("content", [b"speed = 1", b"\xff\xfe", b"rate = ["], ids=["unknown", "binary", "torn"])
def test_settings_that_cannot_be_used_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    file = tmp_path / "s.toml"
    file.write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        Chosen("p", file).settings(Settings)
    assert "error: " in refused(capsys, ended.value.code)  # type: ignore[arg-type]


def test_without_a_server_to_choose_the_remedy_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        Chosen("p", kubeconfig=tmp_path / "none").client()
    assert "--server" in refused(capsys, ended.value.code)  # type: ignore[arg-type]


@pytest.mark.parametrize("lease", ["name", "/name", "namespace/"])
def test_a_lease_has_namespace_and_name(capsys: pytest.CaptureFixture[str], lease: str) -> None:
    with pytest.raises(SystemExit) as ended:
        Chosen("p", server="http://127.0.0.1:1").elector(lease, "me")
    assert "NAMESPACE/NAME" in refused(capsys, ended.value.code)  # type: ignore[arg-type]
