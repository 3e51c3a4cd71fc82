"""Frames made in a test: a few cgroups, a few columns, any time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from api.frame import CGROUP, CgroupInfo, Frame, Table
from koordlet.identity.cgroup_names import name_cgroup


def cgroup_info(identity: int, path: str, name: str = "", qos: str = "") -> CgroupInfo:
    """A cgroup of the kind that its path implies, as the agent describes it."""
    found = name_cgroup(path)
    return CgroupInfo(
        identity,
        path,
        name or found.name,
        qos,
        kind=found.kind,
        pod_uid=found.pod_uid,
        container_id=found.container_id,
        kube_qos=found.kube_qos,
    )


def make_frame(
    seconds: float,
    cgroups: Mapping[int, str],
    columns: Mapping[str, Sequence[Any]],
    blame: Mapping[tuple[int, int], int] | None = None,
) -> Frame:
    """A frame at `seconds` with `cgroups` (id to path), dense `columns`, and cpu blame in ns by (victim, culprit)."""
    ids = np.array(list(cgroups), dtype=np.uint64)
    dense = {
        name: np.array(values, dtype=np.float64 if name.endswith("bytes") else np.uint64)
        for name, values in columns.items()
    }
    tables = {CGROUP: Table({"cgroup": ids}, dense)}
    if blame is not None:
        pairs = np.array(list(blame) or np.empty((0, 2)), dtype=np.uint64)
        tables["cpu.blame"] = Table(
            {"cgroup": pairs[:, 0], "culprit": pairs[:, 1]},
            {"cpu.blame_ns": np.array(list(blame.values()), dtype=np.uint64)},
        )
    infos = tuple(cgroup_info(identity, path, path.rpartition("/")[2] or "/") for identity, path in cgroups.items())
    return Frame(int(seconds * 1e9), int(1.7e18 + seconds * 1e9), infos, tables)
