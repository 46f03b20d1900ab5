"""Our own rule tests hold, a restart after every step makes no difference, and each of them can fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from service.__main__ import main
from service.rules.play import play
from service.rules.scenarios import Scenario, Step, read_scenarios

FILES = sorted(Path(__file__).parent.glob("*.yaml"))


@pytest.mark.parametrize("options", [[], ["--restarts"]], ids=["plain", "restarts"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_holds(file: Path, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["test", *options, str(file)])
    told = capsys.readouterr()
    assert code == 0, told.out + told.err


def test_there_are_such_files() -> None:
    assert len(FILES) >= 10


def _spoilt(step: Step) -> Step:
    """The step with one expected record less, or with a refusal that is not expected."""
    expected = step.expected
    if expected is not None and expected.records:
        expected = replace(expected, records=expected.records[:-1])
    return replace(step, expected=expected, refused=None)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_expectation_can_fail(file: Path) -> None:
    for scenario in read_scenarios(file.read_text()):
        lines = [
            step.line
            for step in scenario.steps
            for can_fail in (step.refused, step.expected and step.expected.records)
            if can_fail
        ]
        spoilt: Scenario = replace(scenario, steps=tuple(map(_spoilt, scenario.steps)))
        assert lines, scenario.name
        assert [failure.line for failure in play(spoilt).failures] == lines, scenario.name
