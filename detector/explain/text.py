"""Text of a story: the verdict or the reason for none, and every rule's evidence tick by tick."""

from collections.abc import Iterator, Sequence

from api.verdict_text import culprit_in_words, in_words
from api.verdicts import How, VerdictState
from detector.explain.flame_graph import summary
from detector.explain.story import Story, StoryTick
from detector.explain.times import format_date_time, format_offset, format_time
from detector.judging.diagnosis import Reason, RuleDiagnosis
from detector.registry import discover_symptoms
from detector.rules import Rule

_NOTABLE = 0.2
"""A rule is shown tick by tick where its loss came to this part of the threshold, or where it held."""
_MAX_CULPRITS = 3
_MAX_STACKS, _MAX_FRAMES = 5, 6
_VISIBLE = 0.0005
"""Seconds per second that do not round to nothing."""

_SILENT = (Reason.NOT_MEASURED, Reason.SUPERSEDED, Reason.NOT_SELECTED)


def render_story(story: Story) -> str:
    """All of it, for a terminal."""
    now = story.now
    who = f"{story.victim.name} ({story.victim.path}{f', {story.victim.qos}' if story.victim.qos else ''})"
    where = story.header.host.get("hostname", "this node")
    at, offset = format_date_time(now.wall_ns), format_offset(now.wall_ns, story.first_ns)
    lines = [f"{who} on {where} at {at}, {offset} into the recording"]
    if story.others:
        named = ", ".join(info.path for info in story.others[:3])
        lines.append(f"(also meant, but lost less: {named}{', ...' if len(story.others) > 3 else ''})")
    lines += ["", *_answer(story, now), ""]
    rules = {rule.name: rule for rule in story.header.settings.rules}
    for name in sorted(_notable(story), key=lambda each: -_worst(story, each)):
        lines += [*_table(story, name, rules.get(name)), ""]
    lines += _stack_lines(story)
    lines += _quiet(story)
    return "\n".join(lines).rstrip()


def lost_of(diagnosis: RuleDiagnosis) -> float | None:
    """Return the loss that the rule judges, the largest of its symptoms; None where none is measured."""
    return max((each.lost for each in diagnosis.symptoms if each.lost is not None), default=None)


def leading(diagnoses: Sequence[RuleDiagnosis]) -> RuleDiagnosis | None:
    """The rule that is open, else the one above its threshold, else one that cools down, else the nearest."""
    ranks = {Reason.OPEN: 3, Reason.NOT_HELD: 2, Reason.COOLING_DOWN: 1}
    return max(diagnoses, key=lambda diagnosis: (ranks.get(diagnosis.reason, 0), _ratio(diagnosis)), default=None)


def reason_in_words(story: Story, diagnosis: RuleDiagnosis) -> str:
    """Return one clause: the rule's state and its reason."""
    lost, limit = lost_of(diagnosis), diagnosis.threshold
    match diagnosis.reason:
        case Reason.OPEN:
            return "a verdict is open"
        case Reason.NOT_SELECTED:
            return "the rule is not about this cgroup"
        case Reason.SUPERSEDED:
            return "the rule is superseded: this host measures a symptom that sees more"
        case Reason.NOT_MEASURED:
            return f"not measured: {_unmeasured(story, diagnosis)}"
        case Reason.COOLING_DOWN:
            return (
                "a verdict closed just before and the rule opens none "
                f"for another {diagnosis.cooldown_left_seconds:.1f} s (cool-down)"
            )
        case Reason.BELOW_THRESHOLD:
            return f"{lost or 0.0:.3f} s/s lost is below the threshold of {limit:.3f}"
        case Reason.BEYOND_SHARE:
            return (
                f"of {lost or 0.0:.3f} s/s lost, {diagnosis.counted:.3f} lies below the own share of the CPUs, "
                f"which is below the threshold of {limit:.3f}"
            )
        case Reason.NOT_HELD:
            needed = f"{diagnosis.needed_ticks + diagnosis.is_one_burst} are needed"
            return (
                f"{lost or 0.0:.3f} s/s lost is above the threshold of {limit:.3f}, but that held in "
                f"{diagnosis.held_ticks} of the last {diagnosis.of_ticks} ticks and {needed}"
                f"{', one more because the cgroup wanted no CPU just before' if diagnosis.is_one_burst else ''}"
            )


def _answer(story: Story, now: StoryTick) -> Iterator[str]:
    if not now.diagnoses:
        yield "The cgroup was not there at this time, or the judge had seen only one frame."
        return
    is_open = [diagnosis for diagnosis in now.diagnoses if diagnosis.is_open]
    for diagnosis in is_open:
        blamed = _blamed(story, diagnosis)
        yield (
            f"A verdict of rule {diagnosis.rule} is open: {lost_of(diagnosis) or 0.0:.3f} s/s lost now"
            f"{f'; {blamed}' if blamed else ''}"
        )
    if not is_open:
        first = leading([diagnosis for diagnosis in now.diagnoses if diagnosis.reason not in _SILENT])
        if first is None:
            yield "No verdict: no rule that is about this cgroup can measure it here."
        else:
            yield f"No verdict. Nearest is rule {first.rule}: {reason_in_words(story, first)}."
    causes = sorted(((lost, name) for name, lost in now.causes.items() if lost >= _VISIBLE), reverse=True)
    yield f"Lost in this tick: {', '.join(f'{name} {lost:.3f} s/s' for lost, name in causes) or 'nothing'}"
    reported = [(tick, verdict) for tick in story.ticks for verdict in tick.verdicts]
    yield "Verdict lines around this time:" if reported else "No verdict line around this time."
    for tick, verdict in reported:
        yield f"  {_when(story, tick)}  {verdict.state:<6} {in_words(verdict, story.name_of)}"


def _table(story: Story, name: str, rule: Rule | None) -> Iterator[str]:
    diagnoses = [(tick, diagnosis) for tick in story.ticks for diagnosis in tick.diagnoses if diagnosis.rule == name]
    some = diagnoses[0][1]
    cooldown = f", silent for {rule.cooldown_seconds:g} s after a close" if rule and rule.cooldown_seconds else ""
    yield (
        f"rule {name}: {_symptoms(some)} at or above the threshold "
        f"in {some.needed_ticks} of {some.of_ticks} ticks{cooldown}"
    )
    yield f"  {'time':<10} {'':>9} {'lost s/s':>9}   {'threshold':>9}  held  {'says':<16} who held the resource"
    for tick, diagnosis in diagnoses:
        lost = lost_of(diagnosis)
        loss = "not seen" if lost is None else f"{lost:.3f}"
        above = ">" if lost is not None and lost >= diagnosis.threshold else " "
        mark = ">" if tick is story.now else " "
        reported = (_REPORTED[verdict.state] for verdict in tick.verdicts if verdict.rule == name)
        state = next(reported, _STATES[diagnosis.reason])
        held = f"{diagnosis.held_ticks}/{diagnosis.of_ticks}"
        suspicious = " (suspicious)" if diagnosis.is_suspicious else ""
        yield (
            f"{mark} {_when(story, tick)} {loss:>9} {above} {diagnosis.threshold:>9.3f}  "
            f"{held:<5} {state:<16} {_blamed(story, diagnosis)}{suspicious}".rstrip()
        )


_REPORTED = {VerdictState.OPEN: "OPENS", VerdictState.UPDATE: "UPDATE", VerdictState.CLOSE: "CLOSES"}
_STATES = {
    Reason.OPEN: "open",
    Reason.NOT_SELECTED: "not selected",
    Reason.SUPERSEDED: "superseded",
    Reason.NOT_MEASURED: "not measured",
    Reason.COOLING_DOWN: "cooling down",
    Reason.BELOW_THRESHOLD: "below threshold",
    Reason.BEYOND_SHARE: "beyond its share",
    Reason.NOT_HELD: "not yet",
}


def _stack_lines(story: Story) -> Iterator[str]:
    """What was seen of culprits and victim, and the functions in which most time went."""
    for evidence in story.stacks:
        yield f"stacks taken at {format_time(round(evidence.time * 1e9))} for rule {evidence.rule}"
        for series in evidence.series:
            yield f"  {summary(evidence, series)}"
            for stack in series.stacks[:_MAX_STACKS]:
                inner = " < ".join(reversed(stack.frames[1:][-_MAX_FRAMES:])) or "no frame"
                yield f"    {stack.seconds:7.3f} s {stack.kind:<9} {stack.frames[0] if stack.frames else ''}: {inner}"
        for note in evidence.notes:
            yield f"  note: {note}"
        yield ""


def _quiet(story: Story) -> Iterator[str]:
    shown = _notable(story)
    found = [*(each for tick in story.ticks for each in tick.diagnoses), *story.now.diagnoses]
    others = {diagnosis.rule: diagnosis for diagnosis in found if diagnosis.rule not in shown}
    if not others:
        return
    yield "other rules at this time"
    width = max(map(len, others))
    for name, diagnosis in others.items():
        yield f"  {name:<{width}}  {reason_in_words(story, diagnosis)}"


def _notable(story: Story) -> set[str]:
    return {
        diagnosis.rule
        for tick in story.ticks
        for diagnosis in tick.diagnoses
        if diagnosis.is_open
        or diagnosis.reason is Reason.COOLING_DOWN
        or diagnosis.held_ticks
        or _ratio(diagnosis) >= _NOTABLE
    }


def _worst(story: Story, rule: str) -> float:
    return max(_ratio(diagnosis) for tick in story.ticks for diagnosis in tick.diagnoses if diagnosis.rule == rule)


def _ratio(diagnosis: RuleDiagnosis) -> float:
    lost = lost_of(diagnosis)
    return 0.0 if lost is None or diagnosis.reason in _SILENT else lost / diagnosis.threshold


def _blamed(story: Story, diagnosis: RuleDiagnosis) -> str:
    lost = lost_of(diagnosis)
    if not lost:
        return ""
    how = {How.DIRECT: "", How.CORRELATED: " (correlated)"}
    named = [
        f"{culprit_in_words(each.path, story.name_of)} {each.share:.0%}{how[each.how]}"
        for each in diagnosis.culprits[:_MAX_CULPRITS]
    ]
    return ", ".join(named) or ("no culprit can be named" if lost >= diagnosis.threshold else "")


def _unmeasured(story: Story, diagnosis: RuleDiagnosis) -> str:
    """Symptoms without a value, and the reasons that the sources of their columns give."""
    known = discover_symptoms()
    symptoms = diagnosis.symptoms
    names = [each.name for each in symptoms if each.lost is None] or [each.name for each in symptoms]
    sources = {column.partition(".")[0] for name in names if name in known for column in known[name].columns}
    reasons = [f"{source}: {story.sources[source]}" for source in sorted(sources) if story.sources.get(source)]
    because = f" ({'; '.join(reasons)})" if reasons else ""
    return f"{', '.join(names)}{because}"


def _symptoms(diagnosis: RuleDiagnosis) -> str:
    return " or ".join(each.name for each in diagnosis.symptoms) or "nothing"


def _when(story: Story, tick: StoryTick) -> str:
    return f"{format_time(tick.wall_ns)} {format_offset(tick.wall_ns, story.first_ns):>9}"
