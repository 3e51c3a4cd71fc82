"""A story in plain words and numbers: is there a verdict, why or why not, and every rule's evidence tick by tick."""

from collections.abc import Iterator, Sequence

from api.verdicts import How, VerdictState, culprit_in_words, in_words
from detector.explain.story import Story, StoryTick
from detector.explain.times import clock, since, stamp
from detector.judging.diagnosis import RuleDiagnosis, Why
from detector.registry import discover_symptoms
from detector.rules import Rule

_NOTABLE = 0.2
"""A rule is shown tick by tick where its loss came to this part of the threshold, or where it held."""
_MOST_CULPRITS = 3
_VISIBLE = 0.0005
"""Seconds per second that do not round to nothing."""

_SILENT = (Why.NOT_MEASURED, Why.RULE_RESTS, Why.NOT_SELECTED)


def in_text(story: Story) -> str:
    """All of it, for a terminal."""
    now = story.now
    who = f"{story.victim.name} ({story.victim.path}{f', {story.victim.qos}' if story.victim.qos else ''})"
    where = story.header.host.get("hostname", "this node")
    lines = [f"{who} on {where} at {stamp(now.wall_ns)}, {since(now.wall_ns, story.first_ns)} into the recording"]
    if story.others:
        named = ", ".join(info.path for info in story.others[:3])
        lines.append(f"(also meant, but lost less: {named}{', ...' if len(story.others) > 3 else ''})")
    lines += ["", *_answer(story, now), ""]
    rules = {rule.name: rule for rule in story.header.settings.rules}
    for name in sorted(_notable(story), key=lambda each: -_worst(story, each)):
        lines += [*_table(story, name, rules.get(name)), ""]
    lines += _quiet(story)
    return "\n".join(lines).rstrip()


def lost_of(look: RuleDiagnosis) -> float | None:
    """What the rule judges by: the largest loss of its symptoms; None where none is measured."""
    return max((each.lost for each in look.symptoms if each.lost is not None), default=None)


def leading(looks: Sequence[RuleDiagnosis]) -> RuleDiagnosis | None:
    """The rule that is open, else the one above its threshold, else one that cools down, else the nearest."""
    ranks = {Why.OPEN: 3, Why.NOT_HELD: 2, Why.COOLING_DOWN: 1}
    return max(looks, key=lambda look: (ranks.get(look.why, 0), _ratio(look)), default=None)


def why_in_words(story: Story, look: RuleDiagnosis) -> str:
    """One clause for what the rule says and why."""
    lost, limit = lost_of(look), look.threshold
    match look.why:
        case Why.OPEN:
            return "a verdict stands"
        case Why.NOT_SELECTED:
            return "the rule is not about this cgroup"
        case Why.RULE_RESTS:
            return "the rule rests, because this host measures what sees more"
        case Why.NOT_MEASURED:
            return f"not measured: {_unmeasured(story, look)}"
        case Why.COOLING_DOWN:
            return (
                "a verdict closed a moment ago and the rule stays silent "
                f"for another {look.cooldown_left_seconds:.1f} s (cool-down)"
            )
        case Why.BELOW_THRESHOLD:
            return f"{lost or 0.0:.3f} s/s lost is below the threshold of {limit:.3f}"
        case Why.NOT_HELD:
            return (
                f"{lost or 0.0:.3f} s/s lost is above the threshold of {limit:.3f}, but that held in "
                f"{look.held_ticks} of the last {look.of_ticks} ticks and {look.needed_ticks} are needed"
            )


def _answer(story: Story, now: StoryTick) -> Iterator[str]:
    if not now.looks:
        yield "The cgroup was not there at this moment, or the judge had seen only one frame."
        return
    standing = [look for look in now.looks if look.is_open]
    for look in standing:
        blamed = _blamed(story, look)
        yield (
            f"A verdict of rule {look.rule} stands: {lost_of(look) or 0.0:.3f} s/s lost now"
            f"{f'; {blamed}' if blamed else ''}"
        )
    if not standing:
        first = leading([look for look in now.looks if look.why not in _SILENT])
        if first is None:
            yield "No verdict: no rule that is about this cgroup can measure it here."
        else:
            yield f"No verdict. Nearest is rule {first.rule}: {why_in_words(story, first)}."
    causes = sorted(((lost, name) for name, lost in now.causes.items() if lost >= _VISIBLE), reverse=True)
    yield f"Lost in this tick: {', '.join(f'{name} {lost:.3f} s/s' for lost, name in causes) or 'nothing'}"
    told = [(tick, verdict) for tick in story.ticks for verdict in tick.verdicts]
    yield "Told around this moment:" if told else "Nothing was told of it around this moment."
    for tick, verdict in told:
        yield f"  {_when(story, tick)}  {verdict.state:<6} {in_words(verdict, story.name_of)}"


def _table(story: Story, name: str, rule: Rule | None) -> Iterator[str]:
    looks = [(tick, look) for tick in story.ticks for look in tick.looks if look.rule == name]
    some = looks[0][1]
    cooldown = f", silent for {rule.cooldown_seconds:g} s after a close" if rule and rule.cooldown_seconds else ""
    yield (
        f"rule {name}: {_symptoms(some)} at or above the threshold "
        f"in {some.needed_ticks} of {some.of_ticks} ticks{cooldown}"
    )
    yield f"  {'time':<10} {'':>9} {'lost s/s':>9}   {'threshold':>9}  held  {'says':<16} who held the resource"
    for tick, look in looks:
        lost = lost_of(look)
        loss = "not seen" if lost is None else f"{lost:.3f}"
        above = ">" if lost is not None and lost >= look.threshold else " "
        mark = ">" if tick is story.now else " "
        says = next((_TOLD[verdict.state] for verdict in tick.verdicts if verdict.rule == name), _SAYS[look.why])
        suspicious = " (suspicious)" if look.is_suspicious else ""
        yield (
            f"{mark} {_when(story, tick)} {loss:>9} {above} {look.threshold:>9.3f}  "
            f"{look.held_ticks}/{look.of_ticks:<3} {says:<16} {_blamed(story, look)}{suspicious}".rstrip()
        )


_TOLD = {VerdictState.OPEN: "OPENS", VerdictState.UPDATE: "tells more", VerdictState.CLOSE: "CLOSES"}
_SAYS = {
    Why.OPEN: "open",
    Why.NOT_SELECTED: "not selected",
    Why.RULE_RESTS: "rests",
    Why.NOT_MEASURED: "not measured",
    Why.COOLING_DOWN: "cooling down",
    Why.BELOW_THRESHOLD: "below threshold",
    Why.NOT_HELD: "not yet",
}


def _quiet(story: Story) -> Iterator[str]:
    shown = _notable(story)
    others = {look.rule: look for tick in story.ticks for look in tick.looks if look.rule not in shown}
    others |= {look.rule: look for look in story.now.looks if look.rule not in shown}
    if not others:
        return
    yield "other rules at this moment"
    width = max(map(len, others))
    for name, look in others.items():
        yield f"  {name:<{width}}  {why_in_words(story, look)}"


def _notable(story: Story) -> set[str]:
    return {
        look.rule
        for tick in story.ticks
        for look in tick.looks
        if look.is_open or look.why is Why.COOLING_DOWN or look.held_ticks or _ratio(look) >= _NOTABLE
    }


def _worst(story: Story, rule: str) -> float:
    return max(_ratio(look) for tick in story.ticks for look in tick.looks if look.rule == rule)


def _ratio(look: RuleDiagnosis) -> float:
    lost = lost_of(look)
    return 0.0 if lost is None or look.why in _SILENT else lost / look.threshold


def _blamed(story: Story, look: RuleDiagnosis) -> str:
    lost = lost_of(look)
    if not lost:
        return ""
    how = {How.DIRECT: "", How.CORRELATED: " (correlated)"}
    named = [
        f"{culprit_in_words(each.path, story.name_of)} {each.share:.0%}{how[each.how]}"
        for each in look.culprits[:_MOST_CULPRITS]
    ]
    return ", ".join(named) or ("nobody can be named" if lost >= look.threshold else "")


def _unmeasured(story: Story, look: RuleDiagnosis) -> str:
    """Symptoms without a value, and why the sources of their columns say they deliver none."""
    known = discover_symptoms()
    names = [each.name for each in look.symptoms if each.lost is None] or [each.name for each in look.symptoms]
    sources = {column.partition(".")[0] for name in names if name in known for column in known[name].columns}
    reasons = [f"{source}: {story.sources[source]}" for source in sorted(sources) if story.sources.get(source)]
    because = f" ({'; '.join(reasons)})" if reasons else ""
    return f"{', '.join(names)}{because}"


def _symptoms(look: RuleDiagnosis) -> str:
    return " or ".join(each.name for each in look.symptoms) or "nothing"


def _when(story: Story, tick: StoryTick) -> str:
    return f"{clock(tick.wall_ns)} {since(tick.wall_ns, story.first_ns):>9}"
