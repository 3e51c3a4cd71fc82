"""CPUs that share a core, and overlaps as columns."""

from pathlib import Path

import numpy as np
import pytest

from api.plugin import Unsupported
from api.settings import SettingsError
from probes.pairs import PairLedger
from probes.smt import parse_pairs, read_cores, sum_by_victim


def _topology(root: Path, *lists: str) -> Path:
    for cpu, siblings in enumerate(lists):
        path = root / f"cpu{cpu}/topology/thread_siblings_list"
        path.parent.mkdir(parents=True)
        path.write_text(f"{siblings}\n")
    (root / "cpufreq").mkdir()
    return root


def test_siblings_are_paired_however_they_are_numbered(tmp_path: Path) -> None:
    assert read_cores(_topology(tmp_path, "0,2", "1,3", "0,2", "1,3")) == {(0, 2), (1, 3)}


def test_neighbouring_numbers(tmp_path: Path) -> None:
    assert read_cores(_topology(tmp_path, "0-1", "0-1", "2")) == {(0, 1)}


def test_a_host_without_siblings_is_unsupported(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="no core has two hardware threads"):
        read_cores(_topology(tmp_path, "0", "1"))


def test_four_threads_a_core_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"cpu0.*4 hardware threads"):
        read_cores(_topology(tmp_path, "0-3"))


def test_declared_pairs() -> None:
    assert parse_pairs("0-1") == {(0, 1)}


@pytest.mark.parametrize("text", ["0", "0-1,", "0,1", "a-b", "0-0", "0-1,1-0", "0-99999"])
def test_bad_pairs_are_refused_with_table_and_key(text: str) -> None:
    with pytest.raises(SettingsError, match=r"\[probes.options.smt\] siblings"):
        parse_pairs(text)


def test_a_victims_culprits_sum_to_its_column() -> None:
    ledger = PairLedger()
    ids = np.array([7, 7, 9], dtype=np.uint64)
    ledger.add(ids, np.array([8, 9, 7], dtype=np.uint64), np.array([100, 23, 23], dtype=np.uint64))
    victims, foreign_ns = sum_by_victim(ledger.table("smt.blame_ns"))
    assert dict(zip(victims.tolist(), foreign_ns.tolist(), strict=True)) == {7: 123, 9: 23}
