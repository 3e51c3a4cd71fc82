"""The table of knobs: complete rows, the document that lists them, and the cost of one knob more."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from api.intents import Knob, Setting
from api.plugin import Unsupported
from koordlet.host.knobs.knobs import Knobs
from koordlet.host.knobs.spec import KnobFile, Order, assign_nothing
from koordlet.host.knobs.table import KNOBS, check
from tests.koordlet.enforcer.hosts import FakeHost

ROOT = Path(__file__).parents[4]
KNOB_IDS = [knob.name for knob in Knob]


def test_every_knob_has_a_row() -> None:
    assert set(KNOBS) == set(Knob)


@pytest.mark.parametrize("knob", Knob, ids=KNOB_IDS)
def test_a_row_is_complete(knob: Knob) -> None:
    spec = KNOBS[knob]
    check(Setting(strategy="calm", target="/pod", knob=knob, value=spec.probe, reason="because"))
    assert (spec.amount(spec.probe) is None) == (spec.order == Order.UNORDERED)
    assert spec.order != Order.UNORDERED or not spec.may_widen_protected, "widening needs an order"
    assert bool(spec.controller) == spec.targets_cgroup
    assert not spec.v1 or spec.v2
    if spec.assign is assign_nothing:
        assert spec.lack is not None and spec.lack.reason and spec.lack.remedy
        assert not spec.v2
    else:
        assert spec.v2
    for lack in filter(None, (spec.lack, spec.lack_v1)):
        assert lack.reason
        assert lack.remedy


@pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])
@pytest.mark.parametrize("knob", Knob, ids=KNOB_IDS)
def test_a_host_has_the_files_of_a_row_or_says_what_it_lacks(tmp_path: Path, knob: Knob, version: int) -> None:
    host = FakeHost(tmp_path, version)
    host.make("/pod")
    spec = KNOBS[knob]
    try:
        found = Knobs(host.tree).assignments(knob, "/pod", spec.probe)
    except Unsupported as error:
        assert error.reason
        return
    names = {file.name.rpartition("/")[2] for file in (*spec.v2, *spec.v1)}
    assert any(name in assignment.attribute.key for assignment in found for name in names)


def cell(files: tuple[KnobFile, ...]) -> str:
    return ", ".join(file.name for file in files) or "unsupported"


def test_the_document_lists_every_knob_as_its_row_has_it() -> None:
    lines = re.findall(r"^\| ([\w.]+) \| (.*)$", (ROOT / "docs/enforcer.md").read_text(), re.MULTILINE)
    documented = {name: [assignment.strip() for assignment in rest.split("|")][:4] for name, rest in lines}
    for knob, spec in KNOBS.items():
        v1 = "same" if spec.v1 == spec.v2 and spec.v2 else cell(spec.v1)
        widening = "may be widened" if spec.may_widen_protected else "-"
        assert documented[knob.value] == [spec.scope.value, cell(spec.v2), v1, widening]


MEMBER = '    SWAP_MAX = "memory.swap.max"\n'
ROW = """
    Knob.SWAP_MAX: KnobSpec(
        values=Bytes(1),
        order=Order.LARGER_IS_WIDER,
        controller="memory",
        v2=(KnobFile("memory.swap.max", Format.BYTES),),
        v1=(KnobFile("memory.memsw.limit_in_bytes", Format.LIMIT_BYTES),),
        probe="max",
        write_phase=WritePhase.BY_LEVEL,
        may_widen_protected=True,
    ),
"""
STORY = """
import sys
from pathlib import Path

from api.frame import CgroupInfo
from api.intents import Knob
from koordlet.control.capabilities import CapabilityReader
from koordlet.host.knobs.knobs import Knobs
from tests.koordlet.enforcer.hosts import FakeHost, want

import koordlet
assert koordlet.__file__.startswith(sys.argv[1]), koordlet.__file__
host = FakeHost(Path(sys.argv[1]) / "host")
pod, container, precious = "/pod", "/pod/c", "/system.slice"
for path in (pod, container, precious):
    host.make(path)
    host.file(path, "memory.swap.max").write_text("max" if path != precious else "8192")
infos = [CgroupInfo(1, pod, "pod", "BE")]
assert Knob.SWAP_MAX in CapabilityReader(host.tree, Knobs(host.tree), "/agent").host(infos).knobs
enforcer = host.enforcer(protected=(precious,))
steps = (
    [want(Knob.SWAP_MAX, "0", pod)],
    [want(Knob.SWAP_MAX, "40960", pod, "a"), want(Knob.SWAP_MAX, "8192", pod, "b")],
    [want(Knob.SWAP_MAX, "8192", pod, "b"), want(Knob.SWAP_MAX, "4096", container)],
    [want(Knob.SWAP_MAX, "4096", precious), want(Knob.SWAP_MAX, "16384", pod, "b")],
    [want(Knob.SWAP_MAX, "16384", precious)],
    [],
)
for intents in steps:
    events = enforcer.step(intents, now=host.later(1))
    texts = [host.text(path, "memory.swap.max") for path in (pod, container, precious)]
    print(*texts, *(f"{event.strategy}:{event.target}:{event.outcome}" for event in events))
"""
EXPECTED = """\
max max 8192 calm:/pod:refused
8192 max 8192 a:/pod:conflict b:/pod:set
8192 4096 8192 b:/pod:unchanged calm:/pod/c:set
16384 max 8192 calm:/pod/c:restored calm:/system.slice:protected b:/pod:set
max max 16384 b:/pod:restored calm:/system.slice:set
max max 8192 calm:/system.slice:restored
"""


def test_a_new_knob_costs_two_files(tmp_path: Path) -> None:
    """With a member and a row it is validated, probed, planned, ordered, written, protected and restored."""
    for package in ("api", "koordlet"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    intents, table = tmp_path / "api/intents.py", tmp_path / "koordlet/host/knobs/table.py"
    intents.write_text(
        intents.read_text().replace('    IO_WEIGHT = "io.weight"\n', MEMBER + '    IO_WEIGHT = "io.weight"\n')
    )
    begin = "KNOBS: Mapping[Knob, KnobSpec] = {"
    table.write_text(table.read_text().replace(begin, begin + ROW))
    done = subprocess.run(
        [sys.executable, "-c", STORY, str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == EXPECTED
