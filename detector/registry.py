"""Symptoms of this installation by name, and the rules that judge by them without settings."""

from collections.abc import Mapping

import msgspec

import detector.symptoms
from api.plugin import PluginError, discover
from detector.rules import COMPOSITIONS, Rule
from detector.symptom import Symptom


def discover_symptoms() -> dict[str, Symptom]:
    """Return the modules of `detector.symptoms` and the entry points of `koord.symptoms`, sorted by name."""
    found = discover(detector.symptoms, Symptom, "koord.symptoms")  # type: ignore[type-abstract]
    return {name: found[name]() for name in sorted(found)}


def default_rules(symptoms: Mapping[str, Symptom] | None = None) -> tuple[Rule, ...]:
    """Return the compositions and each symptom's own rule, sorted by name; `symptoms` are those installed otherwise.

    Raises PluginError for a symptom whose rule has the name of another one.
    """
    found = discover_symptoms() if symptoms is None else symptoms
    rules = {rule.name: rule for rule in COMPOSITIONS}
    for name, symptom in found.items():
        own = symptom.default_rule
        if own is None:
            continue
        rule = msgspec.structs.replace(
            own,
            name=own.name or name.replace("_", "-"),
            any_of=own.any_of if own.symptoms else (name,),
        )
        if rule.name in rules:
            raise PluginError(f"symptom {name}: there is another default rule {rule.name!r}; choose another name")
        rules[rule.name] = rule
    return tuple(rules[name] for name in sorted(rules))
