"""ImageLocality: nodes that hold the pod's images already score by their size, damped while few nodes hold them.

A row keeps the damping of its last change: images spread slowly, and a row is redone whenever it changes.
"""

from typing import Any

import numpy as np

from api.kube.objects import Container, Node
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import MAX_SCORE, Attempt, Handle, Plugin, Scores

MIN_BYTES = 23 * 1024 * 1024
MAX_CONTAINER_BYTES = 1000 * 1024 * 1024


def normalized_image(name: str) -> str:
    """The name as nodes list it: `:latest` when it carries neither tag nor digest."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


class ImageLocality(Plugin[tuple[str, ...]]):
    """Keeps which rows hold which image."""

    name = "ImageLocality"
    rank = 320

    def __init__(self, config: Any, handle: Handle) -> None:
        super().__init__(config, handle)
        self._rows_of: dict[str, dict[Row, int]] = {}
        self._images: dict[Row, tuple[str, ...]] = {}

    def node_changed(self, row: Row, node: Node) -> None:
        """Take over the node's images."""
        self.node_removed(row)
        self._images[row] = tuple(name for image in node.status.images for name in image.names)
        for image in node.status.images:
            for name in image.names:
                self._rows_of.setdefault(name, {})[row] = image.size_bytes

    def node_removed(self, row: Row) -> None:
        """Forget the node's images."""
        for name in self._images.pop(row, ()):
            self._rows_of.get(name, {}).pop(row, None)

    def prepare(self, info: PodInfo) -> tuple[str, ...] | None:
        """The pod's images, None when there are none."""
        containers: list[Container] = [*info.pod.spec.init_containers, *info.pod.spec.containers]
        return tuple(normalized_image(container.image) for container in containers if container.image) or None

    def score(self, attempt: Attempt, spec: tuple[str, ...], rows: Rows) -> Scores | None:
        """(bytes - 23 MiB) of (1000 MiB per container - 23 MiB), each image weighed by its spread."""
        sizes_by_row = [self._rows_of[name] for name in spec if self._rows_of.get(name)]
        if not sizes_by_row:
            return None
        nodes = max(attempt.snapshot.node_count, 1)
        weighed = np.zeros(attempt.snapshot.rows_used, dtype=np.int64)
        for sizes in sizes_by_row:
            spread = len(sizes) / nodes
            for row, size in sizes.items():
                weighed[row] += int(size * spread)
        limit = MAX_CONTAINER_BYTES * len(spec)
        return (weighed[rows].clip(MIN_BYTES, limit) - MIN_BYTES) * MAX_SCORE // (limit - MIN_BYTES)
