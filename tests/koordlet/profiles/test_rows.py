"""Rows of frames: who has one, what stands in it, and what becomes of features that come and go."""

from dataclasses import replace

import numpy as np
import pytest

from api.frame import Frame
from api.window import Window
from koordlet.profiles.rows import Rows
from tests.frames import make_frame

PATHS = {1: "/web", 2: "/batch", 3: "/"}
WORKLOADS = {"/web": ("Deployment/shop/web", "app"), "/batch": ("Job/shop/batch", ""), "/": ("", "")}


def frame(second: float, **more: list[int]) -> Frame:
    ran = [round(second * 1e9 * rate) for rate in (0.5, 1.0, 1.5)]
    made = make_frame(second, PATHS, {"cpu.oncpu_ns": ran} | {key.replace("__", "."): row for key, row in more.items()})
    named = tuple(
        replace(info, workload=WORKLOADS[info.path][0], container=WORKLOADS[info.path][1]) for info in made.cgroups
    )
    return replace(made, cgroups=named)


FRAMES = (frame(0), frame(1))


def test_a_row_for_each_that_has_a_workload() -> None:
    rows = Rows("EPYC", 1.0)
    assert rows.add(Window([frame(0), frame(1), frame(2)]), ["/batch"]) == 2
    segment = rows.take()
    assert len(segment) == 2
    assert segment.texts["workload"] == ["Deployment/shop/web", "Job/shop/batch"]
    assert segment.texts["container"] == ["app", ""]
    assert segment.texts["node_type"] == ["EPYC", "EPYC"]
    assert segment.flags["interference"] == [False, True]
    assert segment.column("cpu_cores").tolist() == pytest.approx([0.5, 1.0])
    assert segment.column("time").tolist() == pytest.approx([1.7e9 + 2] * 2)
    assert (len(rows), len(rows.take())) == (0, 0)


def test_a_feature_that_was_not_measured_in_between_is_not_a_number_there() -> None:
    rows = Rows("", 1.0)
    rows.add(Window([frame(0), frame(1)]), [])
    waited = {"cpu__wait_self_ns": [0, 0, 0]}
    rows.add(Window([frame(1, **waited), frame(2, cpu__wait_self_ns=[10**9, 0, 0])]), [])
    segment = rows.take()
    found = segment.column("cpu_wait_self")
    assert np.isnan(found[:2]).all()
    assert found[2:].tolist() == [1.0, 0.0]


def test_nobody_with_a_workload_is_no_row() -> None:
    rows = Rows("", 1.0)
    bare = [
        replace(each, cgroups=tuple(replace(info, workload="") for info in each.cgroups))
        for each in (frame(0), frame(1))
    ]
    assert rows.add(Window(bare), []) == 0
    assert len(rows.take()) == 0
