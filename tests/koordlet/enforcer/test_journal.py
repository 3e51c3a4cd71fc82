"""The journal on disk: taking over, compaction, damage, and another boot."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from koordlet.enforcer.journal import MOST_DAMAGED, Journal, JournalError, peek
from koordlet.enforcer.journal_format import JournalEntry, decode
from koordlet.host.attribute_formats import Format
from koordlet.host.attributes import KernelFile


def entry(name: str, original: str = "1") -> JournalEntry:
    return JournalEntry(
        attribute=KernelFile(f"/cg/{name}", Format.INTEGER),
        identity="7",
        original=original,
        ours=("2",),
        target="/cg",
        knob="cpu.weight",
        strategy="calm",
        verdict="",
        lease_end=5.0,
    )


def test_what_was_held_is_found_by_the_next(tmp_path: Path) -> None:
    first = Journal(tmp_path, "boot-1")
    assert first.hold([entry("a"), entry("b")])
    first.drop(["/cg/a"])
    first.close()
    second = Journal(tmp_path, "boot-1")
    assert list(second.live) == ["/cg/b"]
    assert second.live["/cg/b"] == entry("b")
    second.close()


def test_one_agent_at_a_time(tmp_path: Path) -> None:
    first = Journal(tmp_path, "boot-1")
    with pytest.raises(JournalError, match="stop it first"):
        Journal(tmp_path, "boot-1")
    first.close()
    Journal(tmp_path, "boot-1").close()


def test_after_a_reboot_there_is_nothing_to_put_back(tmp_path: Path) -> None:
    first = Journal(tmp_path, "boot-1")
    first.hold([entry("a")])
    first.close()
    assert peek(tmp_path, "boot-2") == {}
    second = Journal(tmp_path, "boot-2")
    assert second.live == {}
    assert second.is_of_another_boot
    second.close()


def test_a_journal_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    assert peek(tmp_path, "boot-1") == {}
    (tmp_path / "journal").mkdir()
    with pytest.raises(IsADirectoryError):
        peek(tmp_path, "boot-1")


def test_a_torn_tail_is_not_damage_and_is_cut_off(tmp_path: Path) -> None:
    first = Journal(tmp_path, "boot-1")
    first.hold([entry("a")])
    first.close()
    path = tmp_path / "journal"
    path.write_bytes(path.read_bytes() + b"0badc0de {torn")
    second = Journal(tmp_path, "boot-1")
    assert list(second.live) == ["/cg/a"]
    assert second.damaged_copy is None
    second.hold([entry("b")])
    second.close()
    assert set(decode(path.read_bytes()).live) == {"/cg/a", "/cg/b"}


def test_damage_is_set_aside_and_what_stands_before_it_counts(tmp_path: Path) -> None:
    first = Journal(tmp_path, "boot-1")
    first.hold([entry("a")])
    first.hold([entry("b")])
    first.close()
    path = tmp_path / "journal"
    damaged = path.read_bytes().replace(b"/cg/b", b"/cg/x")
    path.write_bytes(damaged)
    second = Journal(tmp_path, "boot-1")
    assert list(second.live) == ["/cg/a"]
    assert second.damaged_copy is not None
    assert second.damaged_copy.read_bytes() == damaged
    assert "record 3" in second.found.damage
    assert second.found.lost_bytes > 0
    second.close()
    assert not decode(path.read_bytes()).damage


def test_it_is_replaced_when_it_has_grown(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "boot-1", compact_bytes=4000)
    for number in range(100):
        assert journal.hold([entry(f"{number % 3}", str(number))])
        journal.drop([f"/cg/{number % 3}"] if number % 2 else [])
    journal.close()
    assert (tmp_path / "journal").stat().st_size < 6000
    assert decode((tmp_path / "journal").read_bytes()).live == journal.live


def test_more_that_is_live_than_it_is_compacted_to_is_not_rewritten_with_each_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, "boot-1", compact_bytes=4000)
    journal.hold([entry(f"{number}") for number in range(200)])
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    largest = 0
    for number in range(2000):
        assert journal.hold([entry("again", str(number))])
        journal.drop(["/cg/again"])
        largest = max(largest, (tmp_path / "journal").stat().st_size)
    live = len(decode((tmp_path / "journal").read_bytes()).live)
    journal.close()
    assert live == 200
    assert len(synced) < 2000 / 50, "twice for each file"
    whole = (tmp_path / "journal").stat().st_size
    assert largest < 3 * whole


def test_damaged_journals_do_not_pile_up(tmp_path: Path) -> None:
    copies: list[Path] = []
    for number in range(MOST_DAMAGED + 3):
        journal = Journal(tmp_path, "boot-1")
        journal.hold([entry(f"{number}")])
        journal.close()
        with (tmp_path / "journal").open("ab") as stream:
            stream.write(b"no record\nand no record\n")
        journal = Journal(tmp_path, "boot-1")
        assert journal.damaged_copy is not None
        copies.append(journal.damaged_copy)
        journal.close()
    kept = set(tmp_path.glob("journal.damaged-*"))
    assert kept == set(copies[-MOST_DAMAGED:])


def test_below_run_a_reboot_clears_it_with_what_it_would_restore(tmp_path: Path) -> None:
    state = tmp_path / "run/koord/state"
    first = Journal(state, "boot-1")
    assert first.hold([entry("a")])
    first.close()
    assert set(peek(state, "boot-1")) == {"/cg/a"}, "it outlives the agent"
    shutil.rmtree(tmp_path / "run")
    assert peek(state, "boot-2") == {}
    second = Journal(state, "boot-2")
    assert second.live == {} and not second.is_of_another_boot and second.damaged_copy is None
    assert second.hold([entry("b")])
    second.close()
    assert set(peek(state, "boot-2")) == {"/cg/b"}


def test_half_a_batch_is_taken_away_again(tmp_path: Path) -> None:
    disk_is_full = False

    def write(fd: int, content: bytes) -> None:
        os.write(fd, content[: len(content) - 5] if disk_is_full else content)
        if disk_is_full:
            raise OSError(errno.ENOSPC, "full")

    journal = Journal(tmp_path, "boot-1", write=write)
    journal.hold([entry("a")])
    disk_is_full = True
    assert not journal.hold([entry("b"), entry("long" * 50)])
    assert journal.failures == 1
    disk_is_full = False
    assert journal.hold([entry("c")])
    journal.close()
    found = decode((tmp_path / "journal").read_bytes())
    assert set(found.live) == {"/cg/a", "/cg/c"} == set(journal.live)
    assert not found.damage
    assert not found.torn_bytes


def test_a_removed_journal_is_written_anew(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "boot-1")
    journal.hold([entry("a")])
    (tmp_path / "journal").unlink()
    assert journal.hold([entry("b")])
    journal.close()
    assert set(decode((tmp_path / "journal").read_bytes()).live) == {"/cg/a", "/cg/b"}


def test_a_state_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="state_dir"):
        Journal(tmp_path / "file" / "state", "boot-1")


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_a_directory_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    state = tmp_path / "state"
    Journal(state, "boot-1").close()
    state.chmod(mode)
    with pytest.raises(JournalError, match="chmod it to 755"):
        Journal(state, "boot-1")


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("as it was")
    (tmp_path / "state").mkdir(mode=0o755)
    (tmp_path / "state/lock").symlink_to(tmp_path / "mine")
    with pytest.raises(JournalError):
        Journal(tmp_path / "state", "boot-1")
    (tmp_path / "state/lock").unlink()
    (tmp_path / "state/journal.new").symlink_to(tmp_path / "mine")
    with pytest.raises(JournalError):
        Journal(tmp_path / "state", "boot-1")
    assert (tmp_path / "mine").read_text() == "as it was"
