"""Log lines for notable losses."""

from api.window import Window
from koordlet.events import NotableLosses, describe
from tests.frames import make_frame

CGROUPS = {1: "/web", 2: "/batch"}


def window(lost_ns: int) -> Window:
    zero = {"cpu.wait_neighbour_ns": [0, 0]}
    return Window(
        [
            make_frame(0, CGROUPS, zero, {}),
            make_frame(1, CGROUPS, {"cpu.wait_neighbour_ns": [lost_ns, 0]}, {(1, 2): lost_ns}),
        ]
    )


def test_it_speaks_when_a_loss_starts_changes_and_ends() -> None:
    notable = NotableLosses(0.1)

    def said(lost_ns: int) -> list[str]:
        return list(notable.lines(window(lost_ns), CGROUPS.get))

    assert said(50_000_000) == []
    assert said(300_000_000) == ["/web loses 0.30 s/s: cpu:neighbour 0.30; CPU held by /batch 0.30"]
    assert said(350_000_000) == []
    assert len(said(800_000_000)) == 1
    assert said(10_000_000) == ["/web no longer loses notable time"]
    assert said(10_000_000) == []


def test_causes_that_matter_are_named_biggest_first() -> None:
    assert describe({"cpu:self": 0.1, "cpu:neighbour": 0.5, "cpu:idle": 0.001}) == "cpu:neighbour 0.50, cpu:self 0.10"
