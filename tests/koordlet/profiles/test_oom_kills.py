"""OOM kills between two rows: growth is kept over ticks, and after its cgroup is gone."""

from api.window import Window
from koordlet.profiles.oom_kills import OomKills
from tests.frames import make_frame


def test_kills_add_up_until_taken_also_of_what_is_gone() -> None:
    first = make_frame(0, {1: "/a", 2: "/b"}, {"memory.oom_kills": [3, 0]})
    second = make_frame(1, {1: "/a", 2: "/b"}, {"memory.oom_kills": [3, 1]})
    third = make_frame(2, {1: "/a"}, {"memory.oom_kills": [5]})
    kills = OomKills()
    for pair in (Window([first, second]), Window([second, third])):
        kills.after_tick(pair.cgroups, pair.delta())
    assert sorted((info.path, count) for info, count in kills.take()) == [("/a", 2), ("/b", 1)]
    assert kills.take() == []


def test_without_the_probe_there_are_none() -> None:
    pair = Window([make_frame(second, {1: "/a"}, {"cpu.oncpu_ns": [0]}) for second in (0, 1)])
    kills = OomKills()
    kills.after_tick(pair.cgroups, pair.delta())
    assert kills.take() == []
