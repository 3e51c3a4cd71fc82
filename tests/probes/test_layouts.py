"""Every record a probe declares is the C struct of its object, field by field, by the object's own BTF."""

from typing import Any

import numpy as np
import pytest

import probes
from api.plugin import discover
from probes.bpf_object import BpfObject
from probes.btf import Btf, BtfError
from probes.build import object_path
from probes.probe import Probe

PROBES = {name: kind for name, kind in discover(probes, Probe).items() if object_path(name).exists()}  # type: ignore[type-abstract]
RECORDS = [(name, struct) for name, kind in PROBES.items() for struct in kind.records]


def test_every_object_belongs_to_a_probe_that_declares_records() -> None:
    assert len(PROBES) >= 8
    assert all(kind.records for kind in PROBES.values())


@pytest.mark.parametrize(("name", "struct"), RECORDS)
def test_record_equals_the_struct(name: str, struct: str) -> None:
    bpf = BpfObject.open(object_path(name))
    try:
        layout = Btf(bpf.btf())
    finally:
        bpf.close()
    dtype: np.dtype[Any] = PROBES[name].records[struct]
    members = layout.struct(struct)
    assert members is not None, f"{name}.bpf.o has no struct {struct}"
    declared = [(field, offset, sub.itemsize) for field, (sub, offset, *_) in (dtype.fields or {}).items()]
    assert declared == [(m.name, m.offset_bytes, m.size_bytes) for m in members]
    assert dtype.itemsize == layout.struct_size(struct)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x00" * 40, id="zeroes"),
        pytest.param(b"\x9f\xeb\x01", id="header-cut-short"),
    ],
)
def test_torn_btf_is_refused(data: bytes) -> None:
    with pytest.raises(BtfError):
        Btf(data)
