"""Answers as PNG pictures: bars of the first rows, or lines over all of them."""

from pathlib import Path

from api.plugin import Unsupported
from controllers.analysis.engines import Answer
from controllers.analysis.questions import Question

MOST_BARS = 20


def plot(question: Question, answer: Answer, path: Path) -> None:
    """Draw an answer. Raises Unsupported without matplotlib, OSError."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Unsupported(f"plots need matplotlib ({error})", "pip install 'koord[analysis]'") from error
    label = answer.columns.index(question.label)
    rows = answer.rows if question.is_line else answer.rows[:MOST_BARS]
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    texts = [_short(str(row[label])) for row in rows]
    width = 0.8 / len(question.values)
    for place, name in enumerate(question.values):
        column = [float(row[answer.columns.index(name)] or 0.0) for row in rows]
        if question.is_line:
            axes.plot(range(len(rows)), column, label=name.replace("_", " "))
        else:
            axes.barh([row + place * width for row in range(len(rows))], column, width, label=name.replace("_", " "))
    if question.is_line:
        step = max(len(rows) // 12, 1)
        axes.set_xticks(range(0, len(rows), step), texts[::step], rotation=30)
        axes.set_ylabel(question.unit)
        axes.set_ylim(bottom=0)
    else:
        axes.set_yticks(range(len(rows)), texts)
        axes.invert_yaxis()
        axes.set_xlabel(question.unit)
    axes.set_title(question.title)
    axes.legend()
    figure.savefig(path, dpi=120)


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:18]}...{text[-19:]}"
