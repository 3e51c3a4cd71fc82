"""`koordlet top`: the live view."""

import logging
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from koordlet.commands.startup import (
    USAGE_ERROR,
    config_option,
    die,
    judge_settings_of,
    open_agent,
    pods_if_configured,
    require_root,
    settings_of,
)

if TYPE_CHECKING:
    from api.window import Window
    from koordlet.agent.detection import Detection
    from koordlet.config import AgentSettings


@click.command()
@config_option
def top(config: Path | None) -> None:
    """Show victims by lost seconds, with causes and culprits, live. Keys: s sort, enter open, p pause, q quit."""
    require_root()
    settings = settings_of(config)
    if not sys.stdout.isatty():
        die("top needs a terminal", hint="use `koordlet run --standalone` or `koordlet snapshot`", code=USAGE_ERROR)
    from koordlet.top.app import TREND_SECONDS, Verdicts
    from koordlet.top.app import run as run_top

    logging.getLogger().addHandler(logging.NullHandler())  # a line on stderr would tear the screen
    detection = _open_detection(settings, config)
    stack = ExitStack()
    agent = open_agent(settings, stack.enter_context(pods_if_configured(settings)))
    stack.callback(agent.close)

    def next_window() -> "Window | None":
        frame = agent.collect()
        if detection is not None:
            detection.step(frame)
        return agent.store.window(TREND_SECONDS)

    verdicts = Verdicts(lambda: detection.open_verdicts if detection else (), agent.name_of)
    try:
        code = run_top(next_window, settings.interval_seconds, verdicts)
    finally:
        stack.close()
    sys.exit(code)


def _open_detection(settings: "AgentSettings", path: Path | None) -> "Detection | None":
    """A judge that starts from the baselines of a running agent, and neither saves nor records."""
    from detector.judging.judge import Judge
    from koordlet.agent.baseline_store import read_baselines
    from koordlet.agent.detection import Detection

    judge_settings = judge_settings_of(settings, path)
    if judge_settings is None:
        return None
    loaded = read_baselines(Path(settings.detection.baselines_file), time.time(), judge_settings.baselines)
    return Detection(Judge(judge_settings, loaded.baselines))
