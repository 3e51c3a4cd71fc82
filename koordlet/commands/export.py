"""`koordlet export`: what this node keeps on disk, as tables for analysis."""

import logging
import re
import sys
from pathlib import Path

import click

from koordlet.commands.startup import USAGE_ERROR, config_option, die, settings_of

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


@click.command()
@config_option
@click.option("--to", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder of the tables.")
@click.option("--node", default="", help="Name of the node; default: [cluster] node_name, else the host's name.")
@click.option("--grain", type=click.FloatRange(1, 86_400), default=300.0, show_default=True, help="Seconds of a row.")
def export(config: Path | None, to: Path, node: str, grain: float) -> None:
    """Write profiles, harm and actions of this node as partitioned Parquet (docs/analysis.md).

    \b
    Examples:
      koordlet export --to /srv/lake
      koordlet export --to /srv/lake --grain 60 --node worker-7
    """
    import platform

    from koordlet.host.files import HostTree
    from koordlet.host.topology import cpu_places, numa_memory
    from koordlet.profiles.lake import ExportError, NodeCapacity
    from koordlet.profiles.lake import export as write_lake

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(message)s")
    settings = settings_of(config)
    name = node or settings.cluster.node_name or platform.node()
    if not _NODE.fullmatch(name):
        die(f"--node {name!r}: not a node's name", code=USAGE_ERROR)
    tree = HostTree(Path(settings.root))
    places = cpu_places(tree)
    memory_bytes = sum(memory.total_bytes for memory in numa_memory(tree).values())
    capacity = NodeCapacity(len(places), len({place.core for place in places}), memory_bytes)
    audit = Path(settings.enforcer.audit_file) if settings.enforcer.audit_file else None
    older = range(settings.enforcer.audit_files - 1, 0, -1)
    files = [*(audit.with_name(f"{audit.name}.{number}") for number in older), audit] if audit else []
    bar = click.progressbar(length=1, label="days", file=sys.stderr, hidden=not sys.stderr.isatty())
    with bar as progress:

        def told(done: int, steps: int) -> None:
            progress.length = max(steps, 1)
            progress.update(done - progress.pos)

        try:
            rows = write_lake(
                Path(settings.profiles.directory),
                files,
                to,
                node=name,
                capacity=capacity,
                grain_seconds=grain,
                progress=told,
            )
        except (ExportError, OSError) as error:
            die(str(error))
    if not any(rows.values()):
        die(
            f"nothing to export in {settings.profiles.directory}",
            hint="set [profiles] enabled = true and let the agent run",
        )
    for table, count in rows.items():
        click.echo(f"{table}: {count} rows")
