"""Room for new volumes, as storage drivers tell of it in CSIStorageCapacity objects."""

import numpy as np
from numpy.typing import NDArray

from api.kube.storage import Claim, CsiStorageCapacity
from cluster.resources import Key
from scheduler.matching.volumeindex import ReachRows


class StorageRoom:
    """Segments with room, by storage class."""

    def __init__(self) -> None:
        self.version = 0
        """Grows with every change."""
        self._segments: dict[str, dict[Key, CsiStorageCapacity]] = {}
        self._class_of: dict[Key, str] = {}
        self._known: dict[tuple[str, int], NDArray[np.bool_]] = {}
        self._state: tuple[int, int, int] = (-1, -1, -1)
        """What `_known` holds for."""

    def put(self, key: Key, segment: CsiStorageCapacity) -> None:
        """A segment appeared or changed."""
        self.drop(key)
        self._class_of[key] = segment.storage_class_name
        self._segments.setdefault(segment.storage_class_name, {})[key] = segment

    def drop(self, key: Key) -> None:
        """A segment is gone; an unknown one is ignored."""
        self.version += 1
        name = self._class_of.pop(key, None)
        if name is not None:
            del self._segments[name][key]

    def rows(self, claim: Claim, reach: ReachRows) -> NDArray[np.bool_]:
        """bool[rows_used]: rows where a volume of the claim's class and size can be made. Not to be changed."""
        none = reach.none()
        state = (self.version, reach.version, none.shape[0])
        if self._state != state:
            self._known, self._state = {}, state
        size = claim.bytes
        found = self._known.get((claim.class_name, size))
        if found is None:
            for segment in self._segments.get(claim.class_name, {}).values():
                if segment.largest_bytes >= size:
                    none[reach.labelled(segment.node_topology)] = True
            found = self._known[claim.class_name, size] = none
        return found
