"""Run one scenario and keep all that is needed to score its verdicts."""

import time
from dataclasses import dataclass

from api.cgroup_path import is_within
from api.verdicts import Verdict
from bench.detect.claims import Proof, Scenario, labels_of
from bench.detect.measures import GAUGES, Sample, busy_seconds, stolen_seconds
from bench.detect.stage import Stage
from bench.detect.subject import Subject
from detector.evaluation.scoring import Label


@dataclass(frozen=True, slots=True)
class Proven:
    """A proof with its measured value."""

    proof: Proof
    measured: float

    @property
    def holds(self) -> bool:
        """True where the scenario did what it claims."""
        return self.proof.at_least <= self.measured <= self.proof.at_most


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one scenario, over."""

    scenario: Scenario
    labels: tuple[Label, ...]
    verdicts: tuple[Verdict, ...]
    """About the scenario's own cgroups."""
    foreign: int
    """Verdicts that opened about cgroups which are not the bench's: left out of the score."""
    samples: tuple[Sample, ...]
    paths: dict[str, str]
    proven: tuple[Proven, ...]
    until: float
    others_cpus: float
    """CPUs that were busy with anything but the scenario: the agent, the bench, and whatever else the host does."""
    stolen_cpus: float = 0.0
    """CPUs that a hypervisor gave to others, by the kernel's count; a part of the above."""


def run_scenario(scenario: Scenario, subject: Subject) -> Run:
    """Raises OSError where the host cannot stage it."""
    with Stage(scenario.name, subject) as stage:
        busy, stolen = busy_seconds(), stolen_seconds()
        scenario.run(stage)
        ended = time.time()
        others_seconds = busy_seconds() - busy - stage.used_seconds()
        stolen = stolen_seconds() - stolen
    stage.verdicts += subject.poll(2.0)
    harm = stage.harmed or (stage.started, ended)
    own = [verdict for verdict in stage.verdicts if is_within(verdict.victim, stage.prefix)]
    opened = [verdict for verdict in stage.verdicts if verdict.state == "open" and verdict not in own]
    return Run(
        scenario,
        tuple(labels_of(scenario, stage.paths, stage.prefix, harm, (stage.started, ended))),
        tuple(own),
        len(opened),
        tuple(stage.samples),
        stage.paths,
        tuple(Proven(proof, mean(stage.samples, proof, harm)) for proof in scenario.proofs),
        time.time(),
        max(others_seconds, 0.0) / (ended - stage.started),
        stolen / (ended - stage.started),
    )


def mean(samples: list[Sample], proof: Proof, span: tuple[float, float]) -> float:
    """Growth per second of a counter between the samples next to the ends of `span`, or a gauge's mean."""
    slack = 0.05
    within = [
        sample
        for sample in samples
        if span[0] - slack <= sample.time <= span[1] + slack and proof.measure in sample.roles.get(proof.role, {})
    ]
    if not within:
        return float("nan")
    values = [sample.roles[proof.role][proof.measure] for sample in within]
    if proof.measure in GAUGES:
        return sum(values) / len(values)
    seconds = within[-1].time - within[0].time
    return (values[-1] - values[0]) / seconds if seconds > 0 else float("nan")
