"""Pages, plots and the index of pages."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from service.bench.experiment import Experiment, Result
from service.bench.goals import Goal, all_met, in_words
from service.bench.report import Circumstances, page, plot, table, write, write_index

RESULT = Result(
    x="queries",
    y="microseconds",
    series={"old": [(10, 2.0), (100, 4.0)], "new": [(10, 1.0), (100, 1.5)]},
    rows=[
        {"ratio": 2.0, "contender": "old", "n": 1_000},
        {"ratio": 1.0, "contender": "new|er", "n": 10},
    ],
    digest="ab" * 32,
    agrees=True,
    verdict="Twice as fast.",
    log_x=True,
)
EXPERIMENT = Experiment(
    "speed", "a paper, figure 1", "How fast?", "Twice as fast.", lambda scale, seed: RESULT
)
CIRCUMSTANCES = Circumstances("rangewatch bench speed", "2024-02-29", {"cpu": "Abacus 3000", "cores": "2"})


def test_a_table_is_aligned_and_escaped() -> None:
    assert table(RESULT.rows).splitlines() == [
        "| ratio | contender |     n |",
        "|------:|-----------|------:|",
        "|     2 | old       | 1,000 |",
        "|     1 | new\\|er   |    10 |",
    ]
    assert table([]) == ""


def test_numbers_keep_three_digits_that_count() -> None:
    row = {"a": 0.012345, "b": 12.345, "c": 12_345.6, "d": 7, "e": float("inf")}
    assert table([row]).splitlines()[-1].split(" | ") == ["| 0.0123", "12.3", "12,346", "7", "- |"]


def test_a_page_says_what_came_out_and_how_to_measure_it_again() -> None:
    text = page(EXPERIMENT, RESULT, CIRCUMSTANCES)
    for part in (
        "# speed\n",
        "How fast?",
        "a paper, figure 1",
        "**Outcome: confirmed.** Twice as fast.",
        "![microseconds over queries](speed.svg)",
        "`rangewatch bench speed` on 2024-02-29; cpu Abacus 3000, cores 2.",
        "`abababababababab`",
    ):
        assert part in text
    assert "**Outcome: not confirmed.**" in page(EXPERIMENT, replace(RESULT, agrees=False), CIRCUMSTANCES)
    assert "![" not in page(EXPERIMENT, replace(RESULT, series={}), CIRCUMSTANCES)


def test_a_plot_is_the_same_text_in_every_process() -> None:
    here = plot(EXPERIMENT, RESULT)
    code = "import sys; from tests.bench.test_report import *; sys.stdout.write(plot(EXPERIMENT, RESULT))"
    root = Path(__file__).parents[2]
    there = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
    ).stdout
    assert here == there
    assert here.count("<svg ") == 1
    assert all(text in here for text in ("old", "new", "microseconds", "queries"))


def test_the_index_names_the_pages_that_are_there(tmp_path: Path) -> None:
    write(EXPERIMENT, RESULT, CIRCUMSTANCES, tmp_path)
    other = replace(EXPERIMENT, name="never-measured")
    write_index([other, EXPERIMENT], tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "[speed](speed.md)" in text and "| confirmed. Twice as fast. |" in text
    assert "never-measured" not in text
    assert sorted(file.name for file in tmp_path.iterdir()) == ["README.md", "speed.md", "speed.svg"]


def test_goals() -> None:
    fast, small = Goal("times faster", 12.5, 10), Goal("bytes", 200, 150, at_most=True)
    assert (fast.met, small.met) == (True, False)
    assert all_met([fast]) and not all_met([fast, small])
    assert in_words([fast, small]) == "times faster 12.5 (at least 10: met); bytes 200 (at most 150: missed)."
