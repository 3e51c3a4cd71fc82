"""koord-detector: replay, explain and score recordings, train models, list symptoms; away from a node."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

import click
import msgspec

from api.settings import SettingsError
from api.verdict_text import in_words
from api.verdicts import Verdict, to_json
from detector.evaluation.labels import WrittenLabel, labels_of, load_labels
from detector.evaluation.report import as_json, as_text
from detector.evaluation.scoring import Score, score, total
from detector.explain.flame_graph import flame_graphs
from detector.explain.story import NotRecorded, Story, gather_story, recorded_spans, time_span
from detector.explain.symptom_table import symptom_table
from detector.explain.text import render_story
from detector.explain.timeline import timeline
from detector.explain.timeline_png import draw
from detector.explain.times import TIME_FORMS, format_time, parse_time
from detector.models.fit import FitPolicy, fit_profile
from detector.models.format import SCHEMA, ModelFile, encode_models
from detector.models.profiles import ProfilesRefused, by_workload, is_feature, read_profiles
from detector.recording.files import segment_paths
from detector.recording.format import RecordingRefused
from detector.recording.replay import ReplayStep
from detector.recording.replay import replay as replayed
from detector.registry import default_rules, discover_symptoms
from detector.rules import Rule, load_rules

FAILED, ASKED_WRONGLY, CANNOT = 1, 2, 3

_EXISTING = click.Path(exists=True, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_PROGRESS_BYTES = 4 << 20
"""Recordings from this size on show a progress bar."""

_PICTURE_SECONDS = 60.0


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Judge recorded nodes again, and train anomaly models."""


@main.command()
@click.argument("recording", type=_EXISTING)
@click.option("--rules", "rules_file", type=_FILE, help="Judge by these rules (TOML or YAML) in place of the recorded.")
@click.option("--json", "as_objects", is_flag=True, help="One JSON object a line, as printed by `koordlet run --json`.")
def replay(recording: Path, rules_file: Path | None, as_objects: bool) -> None:
    """Print the verdicts of a RECORDING, a file or a directory, again; or those that other rules would give.

    \b
    Examples:
      koord-detector replay /var/lib/koord/recordings
      koord-detector replay /var/lib/koord/recordings --rules stricter.toml
    """
    names: dict[str, str] = {}
    with _refusals():
        for step in _steps(recording, _rules(rules_file)):
            names |= {info.path: info.name for info in step.frame.cgroups} if step.verdicts else {}
            for verdict in step.verdicts:
                line = to_json(verdict) if as_objects else _printable(_sentence(verdict, names)).encode()
                sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


@main.command()
@click.argument("recording", type=_EXISTING)
@click.option("--victim", required=True, help="Path, name, workload or shell pattern of the cgroup.")
@click.option("--at", "at_text", required=True, help=f"Time: {TIME_FORMS}.")
@click.option("--around", default=10.0, show_default=True, type=click.FloatRange(1, 600), help="Seconds either side.")
@click.option("--png", type=click.Path(dir_okay=False, path_type=Path), help="Draw the minute either side as well.")
@click.option("--flames", type=click.Path(dir_okay=False, path_type=Path), help="Draw its recorded stacks as SVG.")
def explain(recording: Path, victim: str, at_text: str, around: float, png: Path | None, flames: Path | None) -> None:
    """Explain why there was a verdict on VICTIM at a time of a RECORDING, or why there was none.

    \b
    Examples:
      koord-detector explain /var/lib/koord/recordings --victim web --at 14:03:05
      koord-detector explain night.koordrec --victim '/kubepods/*/web' --at +90s --png web.png
      koord-detector explain /var/lib/koord/recordings --victim web --at 14:03:05 --flames web.svg
    """
    with _refusals():
        parts = recorded_spans(segment_paths(recording), _warn)
        try:
            at_ns = parse_time(at_text, *time_span(parts))
        except ValueError as error:
            raise click.UsageError(f"--at: {error}") from error
        story = gather_story(parts, victim, at_ns, max(around, _PICTURE_SECONDS if png else 0.0), _warn)
        click.echo(_printable(render_story(story.within(around))))
    if png is not None:
        _picture(story, png)
    if flames is not None:
        _flames(story, flames)


@main.command()
@click.argument("recordings", nargs=-1, required=True, type=_EXISTING)
@click.option("--labels", "labels_file", required=True, type=_FILE, help="TOML, YAML or JSON: what really happened.")
@click.option("--rules", "rules_file", type=_FILE, help="Judge by these rules in place of the recorded.")
@click.option("--only", multiple=True, help="Score only verdicts about these paths (shell pattern); default: all.")
@click.option("--json", "as_object", is_flag=True, help="A JSON list of scores instead of tables.")
def evaluate(
    recordings: tuple[Path, ...], labels_file: Path, rules_file: Path | None, only: tuple[str, ...], as_object: bool
) -> None:
    """Score the verdicts of RECORDINGS against labels: confusion, precision, recall, culprits, time to detect.

    Each recording is one scenario. A labels file has a list `label`, each with victim, resource, culprit, from and to
    (seconds since 1970, an ISO time, or +seconds since the recording began).
    """
    with _refusals():
        labels, rules = load_labels(_text(labels_file), str(labels_file)), _rules(rules_file)
        found_labels: set[WrittenLabel] = set()
        scores = [_scored(recording, labels, found_labels, rules, only or ("*",)) for recording in recordings]
    for label in labels:
        if label not in found_labels:
            _warn(f"the label of {label.victim} from {label.start} is in none of the recordings")
    scores = [*scores, total(scores)] if len(scores) > 1 else scores
    if as_object:
        sys.stdout.buffer.write(msgspec.json.encode([as_json(each) for each in scores]) + b"\n")
    else:
        click.echo(_printable("\n\n".join(as_text(each) for each in scores)))


@main.command()
def symptoms() -> None:
    """List the symptoms of this installation: resource, cause, culprits, and the default rule with its threshold."""
    found = discover_symptoms()
    click.echo(symptom_table(found, default_rules(found)), nl=False)


@main.command()
@click.argument("profiles", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--output", "-o", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Model file.")
@click.option("--feature", "-f", "wanted", multiple=True, help="Column to learn; default: every numeric column.")
@click.option("--min-samples", default=100, show_default=True, help="Workloads with fewer get no model.")
@click.option("--seed", default=0, show_default=True, help="Equal seeds and profiles give equal models.")
def train(profiles: tuple[Path, ...], output: Path, wanted: tuple[str, ...], min_samples: int, seed: int) -> None:
    """Fit an anomaly model for each workload of Parquet PROFILES.

    A profile has a row for each container and window: the column `workload`, optionally `container`, `node_type`,
    `time` and the boolean `interference`; every other numeric column can be a feature.
    """
    try:
        columns = read_profiles(profiles)
    except ImportError as error:
        click.echo(f"reading profiles needs pyarrow ({error}): pip install 'koord[analysis]'", err=True)
        sys.exit(CANNOT)
    except ProfilesRefused as error:
        raise click.UsageError(str(error)) from error
    features = wanted or tuple(name for name, column in columns.items() if is_feature(name, column))
    for name in features:
        if name not in columns or columns[name].dtype.kind not in "fiub":
            raise click.UsageError(f"--feature {name}: the profiles have no such numeric column")
    if not features:
        raise click.UsageError("the profiles have no numeric column to learn from")
    try:
        models, skipped = fit_profile(by_workload(columns, features), FitPolicy(min_samples=min_samples, seed=seed))
    except ImportError as error:
        click.echo(f"training needs scikit-learn ({error}): pip install 'koord[analysis]'", err=True)
        sys.exit(CANNOT)
    if not models:
        click.echo(f"no workload has {min_samples} ordinary samples; nothing written", err=True)
        sys.exit(FAILED)
    _replace(output, encode_models(ModelFile(SCHEMA, features, time.time(), models)))
    for model in models:
        family = str(type(model.model).__struct_config__.tag)
        score = model.average_precision[family]
        click.echo(f"{model.key.workload}: {family}, {model.samples} samples, {model.chosen_by} AP {score:.3f}")
    for key in skipped:
        click.echo(f"{key.workload}: skipped, fewer than {min_samples} ordinary samples", err=True)


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(data)
    fresh.replace(path)


@contextmanager
def _refusals() -> Iterator[None]:
    """Print errors without a traceback, and exit."""
    try:
        yield
    except SettingsError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(ASKED_WRONGLY)
    except (RecordingRefused, NotRecorded) as error:
        click.echo(_printable(f"error: {error}"), err=True)
        sys.exit(FAILED)
    except BrokenPipeError:
        raise
    except OSError as error:
        hint = "; recordings are for root alone" if isinstance(error, PermissionError) else ""
        click.echo(f"error: {error.filename}: {error.strerror}{hint}", err=True)
        sys.exit(FAILED)


def _warn(text: str) -> None:
    click.echo(_printable(f"warning: {text}"), err=True)


def _rules(path: Path | None) -> tuple[Rule, ...] | None:
    if path is None:
        return None
    return load_rules(_text(path), str(path), frozenset(discover_symptoms()))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(str(path), "", f"cannot be read: {error}") from error


def _steps(recording: Path, rules: tuple[Rule, ...] | None) -> Iterator[ReplayStep]:
    """The replay, with a bar on stderr where that is a terminal of its own and there is much to read."""
    paths = segment_paths(recording)
    size = sum(path.stat().st_size for path in paths)
    steps = replayed(paths, _warn, rules)
    if size < _PROGRESS_BYTES or not sys.stderr.isatty() or sys.stdout.isatty():
        yield from steps
        return
    with click.progressbar(length=size, label="replaying", file=sys.stderr) as bar:
        for step in steps:
            bar.update(step.read_bytes - bar.pos)
            yield step


def _picture(story: Story, target: Path) -> None:
    try:
        draw(story, timeline(story), target)
    except ImportError as error:
        click.echo(f"a picture needs matplotlib ({error}): pip install 'koord[analysis]'", err=True)
        sys.exit(CANNOT)
    except OSError as error:
        click.echo(f"error: {target}: {error.strerror or error}", err=True)
        sys.exit(FAILED)


def _flames(story: Story, target: Path) -> None:
    if not story.stacks:
        click.echo(f"error: no stacks of {story.victim.path} were recorded around this time", err=True)
        sys.exit(FAILED)
    title = f"{story.victim.name}: stacks of its verdict and of its culprits"
    with _refusals():
        target.write_text(flame_graphs(story.stacks, title))


def _printable(text: str) -> str:
    """Escape what would steer a terminal: names of cgroups are not trusted."""
    return "".join(each if each.isprintable() or each == "\n" else f"\\x{ord(each):02x}" for each in text)


def _sentence(verdict: Verdict, names: dict[str, str]) -> str:
    return f"{format_time(round(verdict.time * 1e9))} {in_words(verdict, lambda path: names.get(path, path))}"


def _scored(
    recording: Path,
    written: tuple[WrittenLabel, ...],
    found_labels: set[WrittenLabel],
    rules: tuple[Rule, ...] | None,
    only: tuple[str, ...],
) -> Score:
    """The score of one recording; adds to `found_labels` the labels that lie within it."""
    verdicts: list[Verdict] = []
    first_ns = last_ns = 0
    for step in _steps(recording, rules):
        first_ns, last_ns = first_ns or step.frame.wall_ns, step.frame.wall_ns
        verdicts += [each for each in step.verdicts if any(fnmatchcase(each.victim, pattern) for pattern in only)]
    name = recording.resolve().name
    try:
        labels = {each: labels_of((each,), name, first_ns, last_ns) for each in written}
    except ValueError as error:
        raise click.UsageError(f"--labels: {error}") from error
    found_labels.update(each for each, found in labels.items() if found)
    return score(name, [label for found in labels.values() for label in found], verdicts, until=last_ns / 1e9)


if __name__ == "__main__":
    main()
