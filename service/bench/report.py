"""How results are shown: a Markdown table with the ratio first, a plot as SVG, and an index of all pages.

A page says what was asked, what came out, and how to measure it again. The plot of one result is the same
text on every run (no date, no random ids), so a difference in it is a difference in what was measured.

Not for: measuring, or deciding what a result means; the experiment did that.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure

from service.bench.experiment import Experiment, Result

_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "rangewatch",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
#: Lines are told apart without colour too.
_MARKERS = "osD^v<>PX*phd"
_COLOURS = [f"C{i}" for i in range(10)] + ["black", "gold", "teal", "navy"]
_PADDED = 40
"""Longer cells than this are not lined up with the others."""
_CONFIRMED, _NOT_CONFIRMED = "confirmed", "not confirmed"


class Circumstances(NamedTuple):
    """``command`` measures again; ``date`` is ISO 8601; ``machine`` as ``measure.machine`` gives it."""

    command: str
    date: str
    machine: Mapping[str, str]


def table(rows: Sequence[Mapping[str, float | int | str]]) -> str:
    """Rows as a Markdown table; numbers to the right, with three digits that count."""
    if not rows:
        return ""
    columns = list(rows[0])
    cells = [[_cell(row[column]) for column in columns] for row in rows]
    numeric = [all(not isinstance(row[column], str) for row in rows) for column in columns]
    widths = [max(min(len(line[i]), _PADDED) for line in [columns, *cells]) for i in range(len(columns))]

    def line(texts: Sequence[str]) -> str:
        padded = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(texts, widths, numeric, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    rule = "|".join(
        "-" * (width + 1) + (":" if right else "-") for width, right in zip(widths, numeric, strict=True)
    )
    return "\n".join([line(columns), f"|{rule}|", *map(line, cells)])


def _cell(value: float | int | str) -> str:
    if isinstance(value, str):
        return value.replace("|", "\\|")
    if isinstance(value, int):
        return f"{value:,}"
    if value != value or abs(value) == float("inf"):
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def plot(experiment: Experiment, result: Result) -> str:
    """The series of a result, as the text of an SVG."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8.5, 4.5), layout="constrained")
        axes = figure.subplots()
        for number, (name, points) in enumerate(result.series.items()):
            xs, ys = [x for x, _ in points], [y for _, y in points]
            marker, colour = _MARKERS[number % len(_MARKERS)], _COLOURS[number % len(_COLOURS)]
            axes.plot(xs, ys, marker=marker, markersize=5, color=colour, label=name)
        axes.set_xscale("log" if result.log_x else "linear")
        axes.set_yscale("log" if result.log_y else "linear")
        axes.set_xlabel(result.x)
        axes.set_ylabel(result.y)
        axes.set_title(experiment.name, loc="left")
        if len(result.series) > 1:
            figure.legend(loc="outside right upper", frameon=False, fontsize=8)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(part.rstrip() for part in drawn.getvalue().splitlines()) + "\n"


def page(experiment: Experiment, result: Result, circumstances: Circumstances) -> str:
    """All about one experiment, as Markdown."""
    outcome = _CONFIRMED if result.agrees else _NOT_CONFIRMED
    machine = ", ".join(f"{name} {value}" for name, value in circumstances.machine.items())
    parts = [
        f"# {experiment.name}",
        f"{experiment.question}",
        f"Origin: {experiment.origin}. To be confirmed: {experiment.finding}",
        f"**Outcome: {outcome}.** {result.verdict}",
        table(result.rows),
    ]
    if result.series:
        parts.append(f"![{result.y} over {result.x}]({experiment.name}.svg)")
    parts.append(
        f"Measured by `{circumstances.command}` on {circumstances.date}; {machine}. Digest of the answers,"
        f" equal for all contenders: `{result.digest[:16]}`."
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def write(experiment: Experiment, result: Result, circumstances: Circumstances, folder: Path) -> None:
    """Writes the page and the plot of one experiment."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{experiment.name}.md").write_text(page(experiment, result, circumstances))
    if result.series:
        (folder / f"{experiment.name}.svg").write_text(plot(experiment, result))


def write_index(experiments: Iterable[Experiment], folder: Path) -> None:
    """Writes ``README.md`` of a folder: the experiments that have a page there, with what came out.

    Taken from the pages, so measuring one experiment again leaves what is said of the others."""
    rows = []
    for experiment in experiments:
        written = folder / f"{experiment.name}.md"
        if written.is_file():
            outcome = next(
                part for part in written.read_text().splitlines() if part.startswith("**Outcome: ")
            )
            rows.append(
                {
                    "experiment": f"[{experiment.name}]({experiment.name}.md)",
                    "origin": experiment.origin,
                    "outcome": outcome.removeprefix("**Outcome: ").replace(".**", ".", 1),
                }
            )
    text = (
        "# Benchmarks\n\n"
        "`rangewatch bench` measures all of this anew (`--list` names the experiments, `--scale quick` shows"
        " that they run). Contenders take turns in one process, the best of the rounds counts, and all of"
        " them must give the same answers, which brute force checks where there is no other"
        " contender. Libraries are shown at their best: what they would still need for our form"
        " of an answer is left out of their time.\n\n"
    )
    (folder / "README.md").write_text(text + table(rows) + "\n")
