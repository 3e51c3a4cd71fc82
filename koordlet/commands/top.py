"""`koordlet top`: the live view."""

import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from koordlet.commands.startup import (
    ASKED_WRONGLY,
    config_option,
    die,
    judge_settings_of,
    open_agent,
    require_root,
    settings_of,
)

if TYPE_CHECKING:
    from koordlet.agent.detection import Detection
    from koordlet.config import AgentSettings


@click.command()
@config_option
def top(config: Path | None) -> None:
    """Live view: victims by lost seconds, causes, culprits. Keys: s sort, enter drill in, p pause, q quit."""
    require_root()
    settings = settings_of(config)
    if not sys.stdout.isatty():
        die("top needs a terminal", hint="use `koordlet run --standalone` or `koordlet snapshot`", code=ASKED_WRONGLY)
    from koordlet.top.app import Verdicts
    from koordlet.top.app import run as run_top

    logging.getLogger().addHandler(logging.NullHandler())  # a line on stderr would tear the screen
    agent = open_agent(settings, _watching(settings, config))

    def next_window() -> Any:
        agent.tick()
        return agent.store.window(60.0)

    verdicts = Verdicts(lambda: agent.judging.open_verdicts if agent.judging else (), agent.name_of)
    try:
        code = run_top(next_window, settings.interval_seconds, verdicts)
    finally:
        agent.close()
    sys.exit(code)


def _watching(settings: "AgentSettings", path: Path | None) -> "Detection | None":
    """A judge that starts from what a running agent has learned, and leaves saving to it."""
    from detector.judging.judge import Judge
    from koordlet.agent.baseline_store import read_baselines
    from koordlet.agent.detection import Detection

    to_judge_by = judge_settings_of(settings, path)
    if to_judge_by is None:
        return None
    learned = read_baselines(Path(settings.detection.baselines_file), time.time(), to_judge_by.baselines)
    return Detection(Judge(to_judge_by, learned.baselines))
