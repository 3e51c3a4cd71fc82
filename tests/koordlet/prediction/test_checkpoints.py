"""Checkpoints on disk: read back as written; torn, foreign and hostile files do no harm."""

import os
from pathlib import Path

import pytest

from detector.histograms import StoredHistogram
from koordlet.prediction.checkpoints import MAX_BYTES, CheckpointDirectory, decode, encode
from koordlet.prediction.models import StoredModel

UID = "0b9e3c1e-7d2c-4d3b-9a0e-1f7f7e1b2c3d"
MODEL = StoredModel(
    UID, 1_700_000_000.0, StoredHistogram(1_699_999_200.0, {3: 10_000, 7: 12}, 44.5), StoredHistogram(0.0, {}, 0.0)
)


def test_a_checkpoint_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    CheckpointDirectory(tmp_path / "deep/er").save([MODEL])
    assert list(CheckpointDirectory(tmp_path / "deep/er").restore()) == [MODEL]
    assert b'"UID":"0b9e3c1e' in encode(MODEL)
    assert b'"bucketWeights":{"3":10000,"7":12}' in encode(MODEL)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"", id="empty"),
        pytest.param(encode(MODEL)[:-20], id="torn"),
        pytest.param(b"[]", id="no object"),
        pytest.param(encode(MODEL).replace(UID[:4].encode(), b"ffff"), id="of another pod"),
        pytest.param(encode(MODEL).replace(b'"3"', b'"three"'), id="bucket that is no number"),
        pytest.param(b" " * (MAX_BYTES + 1), id="too big"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_removed(tmp_path: Path, text: bytes) -> None:
    (tmp_path / UID).write_bytes(text)
    (tmp_path / f"{UID}.tmp").write_bytes(text)
    assert list(CheckpointDirectory(tmp_path).restore()) == []
    assert list(tmp_path.iterdir()) == []


def test_links_and_directories_are_left_alone(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    inside = tmp_path / "in"
    (inside / "directory").mkdir(parents=True)
    (inside / UID).symlink_to(outside)
    assert list(CheckpointDirectory(inside).restore()) == []
    assert outside.read_text() == "precious"
    assert (inside / UID).is_symlink()


@pytest.mark.parametrize("name", ["../escape", "a/b", ".", "..", "", "x.tmp", "nul\0"], ids=repr)
def test_no_name_leaves_the_directory(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "in"
    (tmp_path / "escape").write_text("precious")
    directory = CheckpointDirectory(inside)
    directory.save([StoredModel(name, MODEL.updated_seconds, MODEL.cpu, MODEL.memory)])
    directory.remove([name])
    assert list(inside.iterdir()) == []
    assert (tmp_path / "escape").read_text() == "precious"


def test_a_directory_that_went_away_costs_counted_failures(tmp_path: Path) -> None:
    directory = CheckpointDirectory(tmp_path / "gone")
    os.rmdir(tmp_path / "gone")
    directory.save([MODEL, MODEL])
    assert directory.failures == 2


def test_another_pods_text_is_refused() -> None:
    with pytest.raises(ValueError, match="checkpoint of"):
        decode(encode(MODEL), "other")
