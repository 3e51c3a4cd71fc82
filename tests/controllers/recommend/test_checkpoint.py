"""Checkpoints of usage: bit for bit, and refused where they are damaged."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.recommend.checkpoint import CheckpointError, decode, encode, load, save
from controllers.recommend.usage import Usage

NOW = 1_700_000_000.0


def used() -> Usage:
    usage, draw = Usage(), np.random.default_rng(1)
    usage.open(np.arange(20) // 2)
    streams = draw.integers(0, 20, 500)
    at = NOW + draw.random(500) * 1e6
    usage.add_cpu(streams, at, draw.exponential(1.0, 500))
    usage.add_memory(streams, at, draw.exponential(1e9, 500))
    return usage


NAMES = [f"a{number}" for number in range(10)], [f"s{number}" for number in range(20)]


def test_a_checkpoint_is_equal_to_the_bit(tmp_path: Path) -> None:
    usage = used()
    save(tmp_path / "usage", usage, *NAMES)
    found, *names = load(tmp_path / "usage")
    assert tuple(names) == NAMES
    assert encode(found, *NAMES) == encode(usage, *NAMES)
    for each in (usage, found):
        each.add_cpu(np.arange(20), np.full(20, NOW + 2e6), np.linspace(0, 5, 20))
        each.add_memory(np.arange(20), np.full(20, NOW + 2e6), np.linspace(0, 5e9, 20))
    assert encode(found, *NAMES) == encode(usage, *NAMES), "what follows is equal, too"
    assert [path.name for path in tmp_path.iterdir()] == ["usage"]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    path.write_bytes(encode(used(), *NAMES)[:-1])
    with pytest.raises(CheckpointError, match=f"{path}: .*remove it"):
        load(path)


@given(st.binary(max_size=200))
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        decode(data)


def test_arrays_of_other_sizes_are_refused() -> None:
    with pytest.raises(CheckpointError, match="do not fit"):
        decode(encode(used(), NAMES[0][:-1], NAMES[1]))
