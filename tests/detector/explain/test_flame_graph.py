"""Flame graphs: well-formed whatever the names, widths by time, nothing fetched."""

from xml.etree import ElementTree

from api.stacks import Stack, StackEvidence, StackKind, StackRole, StackSeries
from detector.explain.flame_graph import flame_graphs, summary

SVG = "{http://www.w3.org/2000/svg}"


def evidence(*stacks: Stack) -> StackEvidence:
    series = StackSeries(
        path="/web",
        role=StackRole.VICTIM,
        stacks=stacks,
        frames=200,
        unresolved_frames=30,
        unseen_seconds={StackKind.BLOCKED: 0.25},
    )
    return StackEvidence(time=1.0, seconds=2.0, hz=49, victim="/web", rule="r", series=(series,))


def boxes(document: str) -> dict[str, float]:
    """Width of the box by its title's name."""
    found = {}
    for group in ElementTree.fromstring(document).iter(f"{SVG}g"):
        title, box = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None
        assert box is not None
        found[str(title.text).partition(":")[0]] = float(box.attrib["width"])
    return found


def test_boxes_are_as_wide_as_their_time() -> None:
    widths = boxes(
        flame_graphs(
            [
                evidence(
                    Stack(StackKind.ON_CPU, ("redis", "main", "hash"), 30, 3.0),
                    Stack(StackKind.ON_CPU, ("redis", "main", "send_[k]"), 10, 1.0),
                )
            ],
            "web",
        )
    )
    assert widths["redis"] == widths["main"] == 1179.7
    assert widths["hash"] == 884.7
    assert widths["send_[k]"] == 294.7


def test_names_cannot_break_the_document() -> None:
    hostile = '</title><script>alert("x")</script>\x00\x1b&'
    document = flame_graphs([evidence(Stack(StackKind.BLOCKED, (hostile, "[lib]"), 1, 1.0))], hostile)
    assert "<script" not in document
    assert "href" not in document
    assert len(boxes(document)) == 2


def test_a_deep_or_narrow_stack_is_cut() -> None:
    deep = Stack(StackKind.ON_CPU, tuple(f"f{number}" for number in range(5_000)), 1, 1.0)
    narrow = Stack(StackKind.ON_CPU, ("narrow",), 1, 1e-6)
    widths = boxes(flame_graphs([evidence(deep, narrow)], "web"))
    assert "f100" in widths
    assert "f4999" not in widths
    assert "narrow" not in widths


def test_the_summary_tells_what_has_no_name_and_no_stack() -> None:
    given = evidence(Stack(StackKind.ON_CPU, ("redis",), 20, 0.4), Stack(StackKind.BLOCKED, ("redis",), 7, 1.5))
    assert summary(given, given.series[0]) == (
        "victim /web: 20 samples at 49 Hz in 2.0 s, 1.50 s of waits, 0.25 s without a stack; "
        "15% of the frames have no name"
    )
