"""Public GPU cluster traces as CSV text: nodes and pods of a cluster, one per line.

Nodes: `sn,cpu_milli,memory_mib,gpu,model`. Pods: `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,
pod_phase,creation_time,deletion_time,scheduled_time`, times in seconds of the trace, `gpu_milli` per GPU,
`gpu_spec` the GPU models that serve, separated by `|`. This is the format of the 2023 GPU trace.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MIB = 1 << 20


class TraceError(ValueError):
    """A trace that cannot be used; the message names file, line and column."""


@dataclass(frozen=True, slots=True)
class NodeShape:
    """One node of a trace."""

    name: str
    cpu_millicores: int
    memory_bytes: int
    gpus: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True)
class PodShape:
    """One pod of a trace: its requests and its lifetime."""

    name: str
    cpu_millicores: int
    memory_bytes: int
    gpus: int = 0
    gpu_percent: int = 0
    """Percent of each GPU, 0 for a pod without."""
    models: tuple[str, ...] = ()
    qos: str = ""
    created_seconds: float = 0.0
    deleted_seconds: float | None = None

    @property
    def total_gpu_percent(self) -> int:
        """Percent of a GPU over all GPUs."""
        return self.gpus * self.gpu_percent


def read_nodes(lines: Iterable[str], source: str) -> list[NodeShape]:
    """Nodes of a node list. Raises TraceError."""
    return [
        NodeShape(
            row.text("sn"),
            row.number("cpu_milli"),
            row.number("memory_mib") * MIB,
            row.number("gpu"),
            row.text("model"),
        )
        for row in _rows(lines, source)
    ]


def read_pods(lines: Iterable[str], source: str) -> list[PodShape]:
    """Pods of a pod list. Raises TraceError."""
    return [
        PodShape(
            name=row.text("name"),
            cpu_millicores=row.number("cpu_milli"),
            memory_bytes=row.number("memory_mib") * MIB,
            gpus=row.number("num_gpu"),
            gpu_percent=-(-row.number("gpu_milli") // 10) if row.number("num_gpu") else 0,
            models=tuple(filter(None, row.text("gpu_spec").split("|"))),
            qos=row.text("qos"),
            created_seconds=float(row.number("creation_time")),
            deleted_seconds=float(row.number("deletion_time")) if row.text("deletion_time") else None,
        )
        for row in _rows(lines, source)
    ]


@dataclass(frozen=True, slots=True)
class _Row:
    source: str
    line: int
    cells: dict[str, str]

    def text(self, column: str) -> str:
        value = self.cells.get(column)
        if value is None:
            raise TraceError(f"{self.source}:{self.line}: no column {column}")
        return value

    def number(self, column: str) -> int:
        text = self.text(column)
        try:
            value = int(text)
        except ValueError as error:
            raise TraceError(f"{self.source}:{self.line}: column {column}: not a whole number: {text!r}") from error
        if value < 0:
            raise TraceError(f"{self.source}:{self.line}: column {column}: {value} is below zero")
        return value


def _rows(lines: Iterable[str], source: str) -> Iterator[_Row]:
    reader = csv.DictReader(lines)
    for cells in reader:
        yield _Row(source, reader.line_num, {key: value or "" for key, value in cells.items() if key})
