"""Experiments: all of them are found, those of the targets run, and the command shows what came out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from service.bench.experiment import Experiment, Result, Scale
from service.bench.experiments import experiments
from service.bench.measure import Disagreement
from service.bench.run import UnknownExperiment, chosen, run
from service.bench.targets import EXPERIMENTS
from service.index.default.mixed import DefaultIndex
from tests.bench.broken import without_the_last
from tests.cli.conftest import rangewatch


def test_names_are_names_of_files() -> None:
    names = [experiment.name for experiment in experiments()]
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9-]*", name) for name in names)
    assert len(set(names)) == len(names) >= len(EXPERIMENTS)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_a_target_is_measured(experiment: Experiment) -> None:
    result = experiment.run(Scale.QUICK, 7)
    assert re.fullmatch("[0-9a-f]{64}", result.digest)
    assert result.verdict.endswith(".")
    (columns,) = {tuple(row) for row in result.rows}
    assert len(columns) > 1
    assert all(y > 0 for points in result.series.values() for _, y in points)


@pytest.mark.parametrize("name", ["default-bulk", "default-registration"])
def test_a_target_without_rivals_is_checked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index forgets its last hit, and no other contender would tell."""
    monkeypatch.setattr(DefaultIndex, "stab", without_the_last(DefaultIndex.stab))
    (experiment,) = chosen(EXPERIMENTS, [name])
    with pytest.raises(Disagreement, match="differs from brute force"):
        experiment.run(Scale.QUICK, 7)


def test_the_seed_decides_the_answers() -> None:
    (experiment,) = chosen(EXPERIMENTS, ["default-wide"])
    digests = [experiment.run(Scale.QUICK, seed).digest for seed in (7, 7, 8)]
    assert digests[0] == digests[1] != digests[2]


def test_choosing() -> None:
    names = [experiment.name for experiment in chosen(EXPERIMENTS, ["loses-*", "default-1d"])]
    assert names[0] == "default-1d" and len(names) > 2
    assert chosen(EXPERIMENTS, []) == list(EXPERIMENTS)
    with pytest.raises(UnknownExperiment, match="no-such"):
        chosen(EXPERIMENTS, ["default-1d", "no-such"])


def _disagree(scale: Scale, seed: int) -> Result:
    raise Disagreement("one differs from two")


def _fine(scale: Scale, seed: int) -> Result:
    return Result("", "", {}, [{"seed": seed}], "00", True, f"{scale} is fine.")


def _break(scale: Scale, seed: int) -> Result:
    raise IndexError("out of bounds")


def test_one_that_fails_does_not_stop_the_others() -> None:
    bad = Experiment("bad", "", "", "", _disagree)
    broken = Experiment("broken", "", "", "", _break)
    good = Experiment("good", "", "", "", _fine)
    begun: list[str] = []
    outcomes = list(
        run([bad, broken, good], Scale.QUICK, 3, begun=lambda experiment: begun.append(experiment.name))
    )
    assert begun == ["bad", "broken", "good"]
    assert (outcomes[0].result, outcomes[0].failure) == (None, "one differs from two")
    assert outcomes[1].result is None and "IndexError: out of bounds" in outcomes[1].failure
    assert outcomes[2].result is not None and outcomes[2].result.verdict == "quick is fine."


def test_the_command_writes_pages_and_prints_tables(tmp_path: Path) -> None:
    done = rangewatch("bench", "default-2d", "--scale", "quick", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\| +ratio \| contender", done.stdout, re.MULTILINE)
    assert "default-2d" in done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "README.md",
        "default-2d.md",
        "default-2d.svg",
    ]
    written = (tmp_path / "default-2d.md").read_text()
    assert "`rangewatch bench default-2d --scale quick --seed " in written


def test_the_command_gives_json_and_says_what_it_does_not_know() -> None:
    done = rangewatch("bench", "default-1d", "--scale", "quick", "--json", "--seed", 7)
    record = json.loads(done.stdout)
    assert (record["name"], done.returncode) == ("default-1d", 0)
    assert {"superintervals", "ncls", "intervaltree"} <= {row["contender"] for row in record["rows"]}
    unknown = rangewatch("bench", "nonsense")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert unknown.stderr == "rangewatch: there is no experiment nonsense; --list names them\n"
    listed = rangewatch("bench", "--list")
    assert listed.returncode == 0 and all(experiment.name in listed.stdout for experiment in EXPERIMENTS)
