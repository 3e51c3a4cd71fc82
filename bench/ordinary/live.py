"""The live part: the work beside the agent that users run, and every verdict about it as it comes."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from api.cgroup_path import is_within
from api.verdicts import VerdictState
from bench.detect.measures import busy_seconds
from bench.detect.stage import Stage
from bench.detect.subject import Subject
from bench.ordinary.parts import Part, open_at_the_end, told_of
from bench.ordinary.work import ordinary_work

WARM_UP_SECONDS = 30.0
LOOK_SECONDS = 10.0


def live(minutes: float, recording: Path | None, keep: Callable[[Part], None]) -> None:
    """Run the work for so many minutes.

    The part so far goes to `keep` every few seconds, so that a run that is ended early has lost nothing. Raises OSError
    where the host cannot stage the work, SubjectError where the agent ends, LoadEndedError where some of the work does.
    """
    with (
        tempfile.TemporaryDirectory(prefix="koord-ordinary-") as folder,
        Subject(Path(folder), recording) as subject,
        Stage("ordinary", subject) as stage,
    ):
        cgroups = ordinary_work(stage)
        stage.wait(WARM_UP_SECONDS)
        print(f"{cgroups} cgroups, {minutes:g} minutes", flush=True)
        began, since, busy, used = time.monotonic(), time.time(), busy_seconds(), stage.used_seconds()
        told = [told_of(each, stage.prefix, since) for each in open_at_the_end(stage.verdicts, stage.prefix)]
        for each in told:
            print(f"   0.0 min  {each.rule}, open since the start: {each.words}", flush=True)
        stage.verdicts.clear()
        while (passed := time.monotonic() - began) < minutes * 60:
            stage.wait(min(LOOK_SECONDS, minutes * 60 - passed))
            seconds = time.monotonic() - began
            for verdict in stage.verdicts:
                if verdict.state is VerdictState.OPEN and is_within(verdict.victim, stage.prefix):
                    told.append(told_of(verdict, stage.prefix, verdict.time))
                    print(f"{seconds / 60:6.1f} min  {verdict.rule}: {told[-1].words}", flush=True)
            stage.samples.clear()
            stage.verdicts.clear()
            others = (busy_seconds() - busy - (stage.used_seconds() - used)) / seconds
            keep(
                Part(
                    kind="live",
                    seconds=seconds,
                    cgroups=cgroups,
                    told=tuple(told),
                    busy_cpus=others,
                    prefix=stage.prefix,
                    recording=str(recording.absolute()) if recording else "",
                    span=(since, time.time()),
                )
            )
            stage.check_running()
