"""`python -m tests.vm`: see run.py.

Exit status 0 all passed, 1 something failed, 2 asked wrongly, 3 no kernel could be had.
"""

import os
import signal
import sys
from pathlib import Path

import click

from tests.vm.beside import HERE
from tests.vm.matrix import MATRIX
from tests.vm.outcomes import Row, failed_last
from tests.vm.run import Plan, build_objects, compile_sources, default_cache, run


def _cpus() -> int:
    return len(os.sched_getaffinity(0))


@click.command()
@click.option("--kernel", "kernels", default="", help="Comma-separated names of the matrix; all by default.")
@click.option("--group", "groups", default="", help="Comma-separated test groups; all by default.")
@click.option("--cache", type=click.Path(path_type=Path), default=default_cache, help="Packages and images.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("build/vm"), show_default=True)
@click.option("--timeout", "timeout_seconds", default=3600.0, show_default=True, help="For one kernel, boot included.")
@click.option("--jobs", type=click.IntRange(min=1), default=_cpus, help="Kernels booted at once; one for each CPU.")
@click.option("--beside", default="", help="A shell command for this machine, run in place of one of the kernels.")
def main(kernels: str, groups: str, cache: Path, output: Path, timeout_seconds: float, jobs: int, beside: str) -> None:
    """Run the kernel tests in other kernels; FORCE_VM=1 turns an unavailable kernel into a failure."""
    wanted = _words(kernels)
    unknown = [name for name in wanted if name not in {entry.name for entry in MATRIX}]
    if unknown:
        known = ", ".join(entry.name for entry in MATRIX)
        raise click.UsageError(f"no kernel {', '.join(unknown)} in the matrix; there are {known}")
    entries = tuple(entry for entry in MATRIX if not wanted or entry.name in wanted)
    plan = Plan(entries, _words(groups), cache.absolute(), output.absolute(), timeout_seconds, jobs, beside)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        build_objects()
        compile_sources()
        rows = run(plan, click.echo)
    except LookupError as error:
        raise click.UsageError(str(error)) from error
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"\n{failed_last(rows)}")
    sys.exit(exit_status(rows, is_forced=os.environ.get("FORCE_VM") == "1"))


def _interrupt(_signal: int, _frame: object) -> None:
    """End on SIGTERM as on Ctrl-C, so that no machine outlives us."""
    raise KeyboardInterrupt


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def exit_status(rows: list[Row], *, is_forced: bool) -> int:
    """Return 1 after any failure (an unavailable kernel counts when forced), 3 when no kernel ran, else 0."""
    results = {row.result for row in rows}
    if "FAIL" in results or (is_forced and "unavailable" in results):
        return 1
    return 3 if {row.result for row in rows if row.kernel != HERE} <= {"unavailable"} else 0


if __name__ == "__main__":
    main()
