"""Files of `--json`, joined and printed: each share with its counts and its interval, whatever ended the runs."""

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

import msgspec
import pytest
from click.testing import CliRunner, Result

from api.verdicts import VerdictState
from bench.detect import __main__ as command
from bench.detect.claims import Scenario
from bench.detect.kept import Kept, as_markdown, read
from bench.detect.report import as_values, scored
from bench.detect.runner import Run
from bench.detect.subject import SubjectError
from tests.bench.detect.test_report import CLAIM, run, verdict

FACTS = {"cpus": 2, "kernel": "6.18", "cgroup": "v2"}


def kept(*runs: Run, **skipped: str) -> Kept:
    return read(json.dumps(as_values([scored(each) for each in runs], skipped, FACTS)))


def found(after: float = 1.5) -> Run:
    return run(verdict(10 + after), verdict(22.0, VerdictState.CLOSE), claims=(CLAIM,))


def row(text: str, name: str) -> list[str]:
    (line,) = (each for each in text.splitlines() if each.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_every_share_is_printed_with_its_counts_and_interval() -> None:
    missed, clean = run(claims=(CLAIM,)), run(verdict(5.0), verdict(6.0, VerdictState.CLOSE))
    text = as_markdown([kept(found(1.5), found(2.5), missed, run(), clean)])
    assert text.startswith("5 runs, 5 of each of 1 scenarios, on 2 CPUs (kernel 6.18, cgroup v2), with 0.10 CPUs of ")
    # Wilson's intervals of 2 of 3 and 2 of 2.
    wilson = "66.7 % (2 of 3, 20.8 to 93.9 %)"
    assert row(text, "Koord") == [
        "Koord",
        wilson,
        wilson,
        "100 % (2 of 2, 34.2 to 100 %)",
        "2.0 s",
        "2.5 s",
        "1 in 2 runs of 1 scenarios",
    ]
    assert row(text, "usage")[1:4] == ["-", "0.0 % (0 of 3, 0.0 to 56.1 %)", "-"]
    assert row(text, "`one`") == ["`one`", "5", "2 of 3", "2 of 2", "1", "2.0", "2.5"]
    assert "- wrong verdict: one: /top/victim" in text
    assert row(text, "recall") == ["recall", "at least 95 %", "66.7 %", "2 of 3 labels in 5 runs", "missed"]
    assert row(text, "verdicts in clean runs")[2:] == ["1", "2 clean runs", "missed"]
    assert row(text, "culprit top-1")[-1] == "met"


@pytest.mark.parametrize(
    ("stolen_cpus", "words"),
    [
        pytest.param(
            0.2,
            "Verdicts that say what a hypervisor took, in runs in which it took CPU time by the kernel's count: 1, "
            "counted as wrong. Precision without them: 50.0 % (1 of 2, 9.5 to 90.5 %).",
            id="which-the-kernel-counted",
        ),
        pytest.param(0.009, "", id="of-which-it-counted-less"),
        pytest.param(0.0, "", id="which-it-did-not"),
    ],
)
def test_verdicts_about_stolen_time_count_as_wrong_and_are_told_apart(stolen_cpus: float, words: str) -> None:
    wrong, steal = verdict(5.0), msgspec.structs.replace(verdict(5.0), cause="steal")
    text = as_markdown([kept(found(), run(wrong), replace(run(steal), stolen_cpus=stolen_cpus))])
    assert row(text, "precision")[2:4] == ["33.3 %", "1 of 3 verdicts in 3 runs"]
    assert f"of which a hypervisor took 0.00 and at most {stolen_cpus:.2f}:" in text
    assert ("Precision without them" in text) == bool(words) and words in text


def test_runs_with_little_stolen_time_are_told_apart_whatever_their_verdicts_say() -> None:
    wrong = run(verdict(5.0))
    text = as_markdown([kept(found(), wrong, replace(wrong, stolen_cpus=0.2))])
    assert row(text, "precision")[2:4] == ["33.3 %", "1 of 3 verdicts in 3 runs"]
    share = "100 % (1 of 1, 20.7 to 100 %)"
    assert (
        "In 2 of 3 runs, of 1 scenarios, the kernel counted less than 0.1 CPUs of stolen time. With all their "
        f"verdicts: precision 50.0 % (1 of 2, 9.5 to 90.5 %), recall {share}, culprit top-1 {share}, "
        "1 verdicts in 1 clean runs."
    ) in text


@pytest.mark.parametrize("stolen_cpus", [pytest.param(0.0, id="none-stolen"), pytest.param(0.2, id="much-in-each")])
def test_runs_that_are_alike_in_stolen_time_are_not_told_apart(stolen_cpus: float) -> None:
    assert "of stolen time" not in as_markdown([kept(replace(found(), stolen_cpus=stolen_cpus))])


def test_a_file_of_an_earlier_version_says_nothing_of_stolen_time() -> None:
    values = as_values([scored(found())], {}, FACTS)
    del values["runs"][0]["stolen_cpus"]
    assert "hypervisor" not in as_markdown([read(json.dumps(values))])


def test_files_are_joined_as_if_they_were_one() -> None:
    first, second = (found(1.0), run(measured=0.02)), (found(2.0),)
    whole = as_markdown([kept(*first, *second)])
    assert as_markdown([kept(*first), kept(*second)]) == whole
    assert "- not proven: `one`: victim wait 0.020" in whole


def test_what_was_not_measured_and_what_was_not_staged_are_named() -> None:
    text = as_markdown([kept(run(measured=float("nan")), disk="no loop device")])
    assert "- not proven: `one`: victim wait nan" in text
    assert "- not staged: `disk`: no loop device" in text


def test_no_runs() -> None:
    assert as_markdown([kept()]) == "no runs"


@pytest.fixture
def signals() -> Iterator[None]:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def bench(*arguments: object) -> Result:
    return CliRunner().invoke(command.main, [str(each) for each in arguments])


@pytest.mark.usefixtures("signals")
def test_all_scenarios_run_once_before_any_runs_again_and_a_killed_run_has_kept_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenarios = [Scenario(name, "", lambda _stage: None, ()) for name in ("a", "b", "c")]
    output, ran = tmp_path / "out.json", list[str]()

    class Agent:
        def __init__(self, *_: object) -> None: ...
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...
        def poll(self, _seconds: float) -> None: ...

    def run_scenario(scenario: Scenario, _subject: Agent) -> Run:
        assert len(read(output.read_text()).runs) == len(ran) if ran else not output.exists()
        ran.append(scenario.name)
        if len(ran) == 5:
            raise SubjectError("the agent ended")
        return Run(scenario, (), (), 0, (), {}, (), 1.0, 0.0)

    monkeypatch.setattr(command, "SCENARIOS", scenarios)
    monkeypatch.setattr(command, "Subject", Agent)
    monkeypatch.setattr(command, "run_scenario", run_scenario)
    monkeypatch.setattr(command.os, "geteuid", lambda: 0)
    monkeypatch.setattr(command.os, "sched_getaffinity", lambda _: {0, 1})
    assert bench("--repeat", 3, "--json", output).exit_code == 1
    assert ran == ["a", "b", "c", "a", "b"]
    assert "8 runs, 2 to 4 of each of 3 scenarios" in bench("report", output, output).output


def test_a_file_of_another_program_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[]")
    result = bench("report", tmp_path / "a.json")
    assert (result.exit_code, "a.json: no figures of bench.detect" in result.output) == (1, True)
