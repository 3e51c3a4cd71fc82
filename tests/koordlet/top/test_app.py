"""The live view driven by keys, at the size of an ssh window."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from textual.pilot import Pilot
from textual.widgets import Static

from api.frame import Frame
from api.verdicts import Culprit, How, Severity, Verdict
from api.window import Window
from koordlet.top.app import DetailScreen, HelpScreen, TopApp, Verdicts
from koordlet.top.rows import Order
from koordlet.top.trend import Trend
from tests.frames import make_frame
from tests.verdicts import make_verdict

PATHS = {1: "/system.slice/mild.service", 2: "/batch/hog", 3: "/kubepods/victim", 4: "/idle"}
Drive = Callable[[TopApp, "Pilot[None]"], Awaitable[None]]


class Ticks:
    """A host on which, each second, `victim` loses 0.5 s to `hog` and `mild` 0.1 s to itself."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.victims_loss_ns = 500_000_000

    def __call__(self) -> Window | None:
        tick = len(self.frames)
        victim = (tick + 1) * self.victims_loss_ns
        frame = make_frame(
            float(tick),
            PATHS,
            {
                "cpu.wait_neighbour_ns": [0, 0, victim, 0],
                "cpu.wait_self_ns": [tick * 100_000_000, 0, 0, 0],
                "cpu.oncpu_ns": [0, tick * 10**9, 0, 0],
            },
            blame={(3, 2): victim},
        )
        self.frames.append(replace(frame, sources={"cpu": "", "pmu": "the CPU offers no cycle counter"}))
        return Window(self.frames) if len(self.frames) > 1 else None


def drive(
    actions: Drive,
    ticks: Ticks | None = None,
    *,
    size: tuple[int, int] = (80, 24),
    verdicts: Verdicts | None = None,
) -> TopApp:
    app = TopApp(ticks or Ticks(), 3600.0, verdicts)  # the test ticks
    app.trend = Trend(60.0, 1.0)

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            app.tick()
            await pilot.pause()
            await actions(app, pilot)

    asyncio.run(run())
    return app


def text_of(app: TopApp, part: str) -> str:
    return str(app.screen.query_one(f"#{part}", Static).render())


def names(app: TopApp) -> list[str]:
    return [line.split()[0] for line in text_of(app, "list").splitlines()]


def test_victims_come_first_with_cause_and_culprit() -> None:
    async def look(app: TopApp, _pilot: Pilot[None]) -> None:
        lines = text_of(app, "list").splitlines()
        assert names(app) == ["victim", "mild.service", "hog"]
        assert "0.500" in lines[0]
        assert "NNNNNNNNNNNN" in lines[0]
        assert "hog 0.500" in lines[0]
        assert "1 quiet" in text_of(app, "title")
        assert "cpu:neighbour" in text_of(app, "legend")
        assert all(len(line) <= 80 for line in lines)

    drive(look)


def test_before_the_second_frame_it_says_that_it_measures() -> None:
    app = TopApp(lambda: None, 3600.0)

    async def run() -> None:
        async with app.run_test(size=(80, 24)):
            assert text_of(app, "list") == "measuring"

    asyncio.run(run())


def test_s_sorts_by_the_next_column() -> None:
    async def look(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("s", "s")
        assert app.order is Order.ONCPU
        assert names(app)[0] == "hog"
        await pilot.press("s")
        assert names(app) == ["hog", "mild.service", "victim"]

    drive(look)


def test_the_selection_stays_on_its_cgroup_when_the_order_changes() -> None:
    async def look(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("down", "down")
        assert app.selected == 2
        await pilot.press("s", "s")
        await pilot.press("enter")
        assert "/batch/hog" in text_of(app, "detail")

    drive(look)


def test_enter_drills_in_and_escape_comes_back() -> None:
    async def look(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        assert isinstance(app.screen, DetailScreen)
        assert "/kubepods/victim" in text_of(app, "detail")
        assert "CPU held by another cgroup" in text_of(app, "detail")
        app.tick()
        await pilot.press("escape")
        assert not isinstance(app.screen, DetailScreen)
        assert names(app)[0] == "victim"

    drive(look)


def test_pause_freezes_the_screen_and_measuring_goes_on() -> None:
    ticks = Ticks()

    async def look(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("p")
        before, taken = text_of(app, "list"), len(ticks.frames)
        ticks.victims_loss_ns *= 3
        app.tick()
        await pilot.pause()
        assert "PAUSED" in text_of(app, "title")
        assert text_of(app, "list") == before
        assert len(ticks.frames) == taken + 1
        await pilot.press("p")
        app.tick()
        await pilot.pause()
        assert text_of(app, "list") != before
        assert len(app.trend.of(3)) == 3

    drive(look, ticks)


def test_a_shows_quiet_cgroups_too() -> None:
    async def look(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("a")
        assert names(app) == ["victim", "mild.service", "hog", "idle"]
        await pilot.press("a")
        assert "idle" not in names(app)

    drive(look)


def test_a_small_screen_scrolls_with_the_selection() -> None:
    async def look(app: TopApp, pilot: Pilot[None]) -> None:
        assert names(app) == ["victim", "mild.service"]
        await pilot.press("end")
        assert names(app) == ["mild.service", "hog"]
        await pilot.press("home")
        assert names(app) == ["victim", "mild.service"]

    drive(look, size=(60, 6))


def test_help_names_keys_letters_and_what_is_not_measured() -> None:
    async def look(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        text = str(app.screen.query(Static).first().render())
        assert "the CPU offers no cycle counter" in text
        assert "its own CPU quota" in text
        await pilot.press("escape")
        assert not isinstance(app.screen, HelpScreen)

    drive(look)


def test_a_cgroup_that_goes_while_it_is_open_is_said_to_be_gone() -> None:
    async def look(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        app.rows = [row for row in app.rows if row.info.id != 3]
        app.draw()
        await pilot.pause()
        assert text_of(app, "detail") == "this cgroup is gone"

    drive(look)


def verdict(victim: str) -> Verdict:
    return make_verdict(
        victim,
        time=1.7e9 + 1,
        lost=0.5,
        severity=Severity.HIGH,
        culprits=(Culprit("/batch/hog", 1.0, How.DIRECT),),
        confidence=0.9,
        evidence={"cpu.wait_neighbour_ns": 0.5},
        since=1.7e9 - 89,
    )


NAMES = {path: path.rpartition("/")[2] for path in PATHS.values()}


def test_verdicts_stand_under_the_list_with_culprit_and_certainty() -> None:
    async def look(app: TopApp, _pilot: Pilot[None]) -> None:
        head, line = text_of(app, "verdicts").splitlines()
        assert "WHOSE DOING" in head
        for word in ("high", "victim", "0.500", "waiting for CPU", "hog 100%", "90%", "2 min"):
            assert word in line
        assert names(app) == ["victim", "mild.service", "hog"]

    drive(look, verdicts=Verdicts(lambda: [verdict("/kubepods/victim")], NAMES.__getitem__))


def test_without_verdicts_the_list_has_the_whole_screen() -> None:
    async def look(app: TopApp, _pilot: Pilot[None]) -> None:
        assert not app.screen.query_one("#verdicts", Static).display

    drive(look)


def test_drilling_in_shows_the_evidence() -> None:
    async def look(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        text = text_of(app, "detail")
        assert "high: victim lost 0.50 s/s waiting for CPU: 0.50 to hog" in text
        assert "by rule cpu-contention" in text
        assert "cpu.wait_neighbour_ns" in text
        await pilot.press("escape", "down", "enter")
        assert "by rule" not in text_of(app, "detail")

    drive(look, verdicts=Verdicts(lambda: [verdict("/kubepods/victim")], NAMES.__getitem__))


def test_a_small_screen_keeps_its_lines_for_cgroups() -> None:
    async def look(app: TopApp, _pilot: Pilot[None]) -> None:
        assert not app.screen.query_one("#verdicts", Static).display
        assert names(app) == ["victim", "mild.service"]

    drive(look, size=(60, 6), verdicts=Verdicts(lambda: [verdict("/kubepods/victim")]))


def test_q_quits_with_success() -> None:
    async def look(_app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("q")

    assert drive(look).return_code == 0
