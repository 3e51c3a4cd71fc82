"""Table of symptoms in Markdown: resource, cause, source of culprits and default threshold, as in docs/verdicts.md."""

from collections.abc import Iterator, Mapping, Sequence

from api.qos import QoSClass
from detector.rules import Rule
from detector.symptom import BlameSource, Symptom

_HEAD = ("symptom", "resource", "cause", "culprits", "default rule", "threshold")


def symptom_table(symptoms: Mapping[str, Symptom], rules: Sequence[Rule]) -> str:
    """Return a row for each symptom with the first of the rules that composes it; thresholds in lost s/s."""
    rows = [_HEAD, *_rows(symptoms, rules)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEAD))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, " | ".join("-" * width for width in widths))
    return "".join(f"| {line} |\n" for line in lines)


def _rows(symptoms: Mapping[str, Symptom], rules: Sequence[Rule]) -> Iterator[tuple[str, ...]]:
    for name, symptom in symptoms.items():
        rule = next((rule for rule in rules if name in rule.symptoms), None)
        judged = (rule.name, _threshold(rule)) if rule else ("none", "")
        yield (f"`{name}`", symptom.resource, symptom.cause, _culprits(symptom.blame), *judged)


def _culprits(source: BlameSource) -> str:
    if source.named:
        return f"`{source.named}`"
    if source.ancestor_columns:
        limiter = f"the nearest ancestor {'with a full limit' if source.full_ratio else 'that limits'}"
        return f"{limiter}, by `{source.used}` below it" if source.used else limiter
    if source.explained:
        return "those of its other symptoms"
    parts = [f"`{source.table}`"] if source.table else []
    parts += [f"shares of `{source.takers}`"] if source.takers else []
    parts += ["correlation as in CPI2"] if source.published else []
    same = source.suspects == source.takers
    parts += [f"correlation with {'it' if same else f'`{source.suspects}`'}"] if source.suspects else []
    return ", then ".join(parts) or "none"


def _threshold(rule: Rule) -> str:
    """The threshold, those of single QoS classes, and the classes that the rule leaves out."""
    selected = rule.selector.qos
    notes = [f"{qos} {loss:g}" for qos, loss in rule.qos_thresholds.items()]
    notes += [f"not {qos}" for qos in QoSClass if selected and qos not in selected]
    more = f" ({', '.join(notes)})" if notes else ""
    return f"{rule.threshold:g}{more}"
