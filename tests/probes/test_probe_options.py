"""Options of single probes are refused by table and key before anything is opened."""

from collections.abc import Mapping

import pytest

import probes
from api.plugin import discover
from api.settings import SettingsError
from probes.probe import Option, Probe, ProbeLimits, check_options

KINDS = discover(probes, Probe)  # type: ignore[type-abstract]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            {"nothing": {"x": 1}}, r"\[probes.options.nothing\] x: there is no such probe", id="unknown-probe"
        ),
        pytest.param(
            {"pmu": {"stand_inn": True}},
            r"\[probes.options.pmu\] stand_inn: unknown option; it takes stand_in",
            id="unknown-option",
        ),
        pytest.param(
            {"irq": {"x": 1}},
            r"\[probes.options.irq\] x: unknown option; it takes none",
            id="option-of-an-optionless-probe",
        ),
        pytest.param(
            {"pmu": {"stand_in": 3}}, r"\[probes.options.pmu\] stand_in: 3 is not a bool", id="number-for-bool"
        ),
        pytest.param(
            {"resctrl": {"match": False}}, r"\[probes.options.resctrl\] match: False is not a str", id="bool-for-text"
        ),
    ],
)
def test_what_no_probe_takes_is_refused(options: Mapping[str, Mapping[str, Option]], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        check_options(ProbeLimits(options=options), KINDS)


def test_every_declared_default_is_accepted() -> None:
    declared = {name: dict(kind.options) for name, kind in KINDS.items() if kind.options}
    assert {"pmu", "smt", "resctrl"} <= declared.keys()
    check_options(ProbeLimits(options=declared), KINDS)


def test_whole_seconds_may_be_written_without_a_point() -> None:
    limits = ProbeLimits(options={"resctrl": {"turn_seconds": 5}})
    check_options(limits, KINDS)
    assert limits.option("resctrl", "turn_seconds", 10.0) == 5.0
    with pytest.raises(SettingsError):
        ProbeLimits(options={"resctrl": {"turn_seconds": True}}).option("resctrl", "turn_seconds", 10.0)
