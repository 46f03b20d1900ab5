"""Our own rule tests hold, a restart after every step makes no difference, and each of them can fail."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from service.__main__ import main
from service.log.topics import BORDERS, DEAD_LETTER
from service.model import Reason
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


def test_every_reason_is_expected_by_some_scenario_unless_no_rule_test_can() -> None:
    """Of border records, of dead letters, and of either those or commands; the page says which none can."""
    steps = [step for file in FILES for one in read_scenarios(file.read_text()) for step in one.steps]
    told = [record for step in steps if step.expected for record in step.expected.records]
    found = {(record.topic, record.fields["reason"]) for record in told if "reason" in record.fields}
    refused = {step.refused.reason for step in steps if step.refused}
    found |= {
        ("", reason) for reason in refused | {reason for topic, reason in found if topic == DEAD_LETTER}
    }
    wanted = {("", reason.value) for reason in Reason}
    for topic in (BORDERS, DEAD_LETTER):
        schema = json.loads((resources.files("service") / "schemas" / f"{topic}.json").read_text())
        wanted |= {(topic, reason) for reason in schema["properties"]["reason"]["enum"]}
    page = (Path(__file__).parents[2] / "docs" / "rule-tests.md").read_text()
    cannot = page.partition("## What no rule test can say")[2].partition("\n## ")[0]
    assert [reason for _, reason in sorted(wanted - found) if f"`{reason}`" not in cannot] == []


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
