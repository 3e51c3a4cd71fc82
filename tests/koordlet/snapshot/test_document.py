"""The snapshot: figures from frames, valid against its schema, no null without a reason."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from rich.console import Console

from api.frame import KERNEL_ID
from api.histogram import SLOTS
from api.metrics import WAIT_CAUSES
from api.window import Window
from koordlet.snapshot import table
from koordlet.snapshot.document import snapshot
from tests.frames import make_frame

SCHEMA = json.loads(Path("docs/snapshot.schema.json").read_text())
HOST = {"hostname": "h", "kernel": "k", "machine": "m", "cpus": 2, "cgroup_version": 2, "koord_version": "0"}
CGROUPS = {1: "/", 7: "/web", 9: "/batch"}
REASONS = dict.fromkeys(("memory", "blockio", "net", "turnaround", "pmu", "resctrl", "pressure", "irq"), "not here")


def window(turnaround: bool = False) -> Window:
    columns: dict[str, Any] = {"cpu.oncpu_ns": [0, 500, 900], "cpu.wait_ns": [0, 1000, 0], "cpu.wait_count": [0, 4, 0]}
    columns |= {f"cpu.wait_{cause}_ns": [0, 0, 0] for cause in WAIT_CAUSES}
    columns |= {"cpu.wait_neighbour_ns": [0, 700, 0], "cpu.wait_kernel_ns": [0, 300, 0]}
    if turnaround:
        slots = np.zeros((3, SLOTS), dtype=np.uint64)
        slots[1, 5] = 10
        columns |= {"turnaround.requests": [0, 10, 0], "turnaround.hist": slots}
    zero = {name: np.zeros_like(np.array(values)) for name, values in columns.items()}
    return Window(
        [
            make_frame(0, CGROUPS, zero, {}),
            make_frame(2, CGROUPS, columns, {(7, 9): 600, (7, 1234): 100, (7, KERNEL_ID): 300}),
        ]
    )


def measured(**kwargs: Any) -> dict[str, Any]:
    return snapshot(window(**kwargs), CGROUPS.get, HOST, REASONS)


def test_it_is_valid_and_has_the_figures() -> None:
    found = json.loads(json.dumps(measured()))
    jsonschema.validate(found, SCHEMA)
    web = next(row for row in found["cgroups"] if row["path"] == "/web")
    assert web["cpu"]["wait_seconds"] == pytest.approx(1e-6)
    assert sum(web["cpu"]["wait_by_cause"].values()) == pytest.approx(web["cpu"]["wait_seconds"])
    assert [(b["path"], round(b["seconds"] * 1e9)) for b in web["cpu"]["blame"]] == [
        ("/batch", 600),
        ("[kernel]", 300),
        ("[gone 1234]", 100),
    ]


def test_a_section_that_is_null_has_its_reason() -> None:
    found = measured()
    for section in ("memory", "blockio", "net", "turnaround", "pmu", "resctrl", "pressure"):
        assert all(row[section] is None for row in found["cgroups"])
        assert found["host"]["unsupported"][section] == "not here"


def test_turnaround_percentiles_are_null_without_requests() -> None:
    found = measured(turnaround=True)
    by_path = {row["path"]: row["turnaround"] for row in found["cgroups"]}
    assert by_path["/web"]["requests"] == 10
    assert 16.3e-6 <= by_path["/web"]["p50_seconds"] <= 32.8e-6
    assert by_path["/batch"] == {"requests": 0, "p50_seconds": None, "p99_seconds": None, "ports": []}


def test_an_unknown_field_would_fail_the_schema() -> None:
    found = measured()
    found["cgroups"][0]["surprise"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, SCHEMA)


def test_pods_are_told_by_name_owner_and_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    made = window()
    web = replace(
        made.cgroups[1],
        name="shop/web-0/app",
        namespace="shop",
        pod="web-0",
        container="app",
        role="app",
        workload="StatefulSet/shop/web",
        priority=9500,
        priority_band="koord-prod",
    )
    for frame in made.frames:
        object.__setattr__(frame, "cgroups", (frame.cgroups[0], web, frame.cgroups[2]))
    found = json.loads(json.dumps(snapshot(made, CGROUPS.get, HOST, REASONS)))
    jsonschema.validate(found, SCHEMA)
    row = next(each for each in found["cgroups"] if each["id"] == web.id)
    assert [row[key] for key in ("namespace", "pod", "container", "priority")] == ["shop", "web-0", "app", 9500]
    shown = io.StringIO()
    monkeypatch.setattr(table, "Console", lambda: Console(file=shown, width=200))
    table.print_table(found)
    assert "shop/web-0/app (StatefulSet web)" in shown.getvalue()


@pytest.mark.parametrize("width", [80, 100, 140])
def test_long_names_leave_room_for_the_culprit_and_its_rate(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    long = "a-deployment-of-the-shop-6f7d8-abcde/application"
    cpu = {"wait_seconds": 1.0, "wait_by_cause": {"neighbour": 0.4}, "blame": [{"name": long, "seconds": 0.4}]}
    row = {"name": f"other-{long}", "pod": None, "workload": "", "cpu": cpu, "memory": None}
    shown = io.StringIO()
    monkeypatch.setattr(table, "Console", lambda: Console(file=shown, width=width))
    table.print_table({"seconds": 1.0, "cgroups": [row]})
    title, headings, line = (each.rstrip() for each in shown.getvalue().splitlines())
    assert title.strip() == "lost seconds per second over 1.0 s"
    assert re.split(r"\s{2,}", headings) == [
        "cgroup",
        "on cpu",
        "cpu wait",
        "of it by others",
        "quota",
        "memory",
        "worst culprit",
    ]
    assert line.startswith("other-a-depl")
    assert " a-deployment"[: width // 10] in line
    assert line.endswith(" 0.40")
    assert len(line) <= width
