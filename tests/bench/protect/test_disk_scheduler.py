"""The scheduler of the benchmark's disk: as it was before once the benchmark ends, however it ends."""

from pathlib import Path

import pytest

from bench.detect.disk import Disk
from bench.protect import disk


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(disk, "BLOCK_DEVICES", tmp_path)
    made = tmp_path / "loop7" / "queue"
    (made / "iosched").mkdir(parents=True)
    (made / "scheduler").write_text("none [mq-deadline] bfq\n")
    return made


@pytest.mark.parametrize("fault", [None, KeyboardInterrupt])
def test_the_scheduler_is_put_back(queue: Path, tmp_path: Path, fault: type[BaseException] | None) -> None:
    seen: list[str] = []

    def use() -> None:
        with disk.scheduler(Disk(Path("/dev/loop7"), tmp_path, 0), "bfq,strict_guarantees=1"):
            seen.extend(((queue / "scheduler").read_text(), (queue / "iosched/strict_guarantees").read_text()))
            if fault is not None:
                raise fault

    if fault is None:
        use()
    else:
        with pytest.raises(fault):
            use()
    assert seen == ["bfq", "1"]
    assert (queue / "scheduler").read_text() == "mq-deadline"


def test_the_kernels_choice_is_left_alone(queue: Path, tmp_path: Path) -> None:
    with disk.scheduler(Disk(Path("/dev/loop7"), tmp_path, 0), ""):
        assert (queue / "scheduler").read_text() == "none [mq-deadline] bfq\n"
