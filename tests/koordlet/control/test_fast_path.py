"""What the fast path asks the kernel to watch."""

from dataclasses import replace
from typing import cast

import numpy as np

from koordlet.control.fast_path import FastPath
from koordlet.response.observation import Observation
from koordlet.response.settings import ResponseSettings
from probes.tripwire import Trip, Tripwire
from tests.frames import cgroup_info


class Wire:
    """Remembers what it was told to watch."""

    victims: object = None
    culprits: object = None

    def watch(self, victims: object, culprits: object) -> None:
        self.victims, self.culprits = victims, culprits

    def wait(self, _seconds: float) -> list[Trip]:
        return []


def test_a_user_who_makes_thousands_of_cgroups_takes_no_entry_of_another() -> None:
    crowd = [replace(cgroup_info(number, f"/user/{number}", qos="BE"), owner_uid=1000) for number in range(100, 5000)]
    directory = replace(cgroup_info(1, "/user", qos="BE"), owner_uid=1000)
    services = [cgroup_info(number, f"/late-{number}", qos="LS") for number in range(5000, 5010)]
    batch = [cgroup_info(number, f"/batch-{number}", qos="BE") for number in range(6000, 6010)]
    infos = (directory, *crowd, *services, *batch)
    nothing = np.zeros(len(infos))
    seen = Observation(1.0, infos, (), {}, nothing, nothing, nothing, nothing, nothing)
    wire = Wire()
    fast_path = FastPath(cast(Tripwire, wire), lambda _trip: None, ResponseSettings())
    try:
        fast_path.watch(seen)
        watched = cast(set[int], wire.culprits)
        assert {info.id for info in batch} < watched
        assert len(watched) == 64 + len(batch)
        assert cast(dict[int, object], wire.victims).keys() == {info.id for info in services}
        assert fast_path.unwatched == 1 + len(crowd) - 64
    finally:
        fast_path.close()


def test_no_more_is_watched_than_the_maps_hold() -> None:
    """A full map would refuse, and no cgroup be watched at all."""
    classes = ["LS"] * 1100 + ["BE"] * 4200
    infos = tuple(cgroup_info(number, f"/{qos}-{number}", qos=qos) for number, qos in enumerate(classes, 1))
    nothing = np.zeros(len(infos))
    seen = Observation(1.0, infos, (), {}, nothing, nothing, nothing, nothing, nothing)
    wire = Wire()
    fast_path = FastPath(cast(Tripwire, wire), lambda _trip: None, ResponseSettings())
    try:
        fast_path.watch(seen)
        assert len(cast(dict[int, object], wire.victims)) == 1024
        assert len(cast(set[int], wire.culprits)) == 4096
        assert fast_path.unwatched == (1100 - 1024) + (4200 - 4096)
        fast_path.watch(replace(seen, cgroups=infos[1000:1200]))
        assert fast_path.unwatched == 0
        fast_path.follow(ResponseSettings(limited_classes=()))
        fast_path.watch(replace(seen, cgroups=infos[1000:1200]))
        assert wire.culprits == set()
    finally:
        fast_path.close()
