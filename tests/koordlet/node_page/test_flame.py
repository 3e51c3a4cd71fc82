"""Flame graphs: width is time, callers above callees, narrow frames left out, names as text."""

from api.stacks import Stack, StackEvidence, StackKind, StackRole, StackSeries
from koordlet.node_page.flame import newest, section
from tests.api.pages.test_markup import HOSTILE, read


def evidence(*stacks: Stack, time: float = 1_700_000_000.0, unresolved: int = 0) -> StackEvidence:
    series = StackSeries(
        path="/batch",
        role=StackRole.CULPRIT,
        stacks=stacks,
        frames=100,
        unresolved_frames=unresolved,
        unseen_seconds={},
    )
    return StackEvidence(time=time, seconds=5.0, hz=99, victim="/web", rule="cpu-contention", series=(series,))


def on_cpu(seconds: float, *frames: str) -> Stack:
    return Stack(StackKind.ON_CPU, frames, 1, seconds)


def test_a_frame_is_as_wide_as_its_time_and_lies_below_its_caller() -> None:
    made = section(0, evidence(on_cpu(3.0, "xz", "encode"), on_cpu(1.0, "xz", "read_[k]")), "web")
    found = read(made.body)
    assert "encode: 3.000 s, 75.0%" in found.text
    assert "on CPU: 4.00 s" in found.text
    widths = [float(value or 0) for name, value in found.attributes if name == "width"]
    assert sorted(widths) == [294.5, 884.5, 1179.5, 1180.0], "two callees, their caller, the picture"
    assert {value for name, value in found.attributes if name == "y"} >= {"0", "17"}
    assert "c-kernel" in {value for name, value in found.attributes if name == "class"}


def test_kinds_have_pictures_of_their_own() -> None:
    waited = Stack(StackKind.BLOCKED, ("xz", "futex_[k]"), 2, 0.5)
    text = read(section(0, evidence(on_cpu(1.0, "xz"), waited), "web").body).text
    assert "on CPU: 1.00 s" in text
    assert "blocked: 0.50 s" in text


def test_narrow_frames_are_left_out_and_deep_ones_cut() -> None:
    deep = on_cpu(10.0, *(f"f{number}" for number in range(500)))
    found = read(section(0, evidence(deep, on_cpu(0.001, "tiny")), "web").body)
    assert "tiny" not in found.text
    assert found.elements.count("rect") == 48


def test_names_are_text_and_nothing_measured_is_said() -> None:
    found = read(section(0, evidence(on_cpu(1.0, HOSTILE)), HOSTILE).body)
    assert "script" not in found.elements
    assert "No stack was taken" in read(section(0, evidence(), "web").body).text
    assert "7% of the frames" in read(section(0, evidence(unresolved=7), "web").body).text


def test_the_newest_measurement_comes_first_with_an_anchor_of_its_own() -> None:
    made = newest([evidence(time=1.0), evidence(time=2.0)], str.upper)
    assert [one.identity for one in made] == ["evidence-0", "evidence-1"]
    assert made[0].title == "Stacks behind the verdict on /WEB"
    assert "00:00:02" in made[0].body
