"""The page on rule tests tells the truth: its example passes, its mistake gives its diff."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from service.__main__ import main
from service.rules import scenarios
from tests.docs.test_threat_model import TEST, functions_in

PAGE = (Path(__file__).parents[2] / "docs" / "rule-tests.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_example_and_its_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = [text for language, text in BLOCKS if language == "yaml"]
    passes, fails = [text for language, text in BLOCKS if not language]
    Path("harbour.yaml").write_text(example)
    command, _, output = passes.partition("\n")
    assert command.startswith("$ rangewatch ")
    assert main(command.split()[2:]) == 0
    assert capsys.readouterr().out == output

    Path("harbour.yaml").write_text(example.replace("lat < 29.8", "lat < 29.9"))
    assert main(["test", "harbour.yaml"]) == 1
    assert capsys.readouterr().out == fails


def test_every_field_is_explained() -> None:
    named = set(re.findall(r"`(\w+)", PAGE))
    fields = {*scenarios._FILE, *scenarios._SCENARIO, *scenarios._STEP, *scenarios.SETTINGS}
    assert fields - named == set()


def test_what_no_rule_test_can_say_is_shown_by_tests_that_exist() -> None:
    section = PAGE.partition("## What no rule test can say")[2].partition("\n## ")[0]
    _, _, *rows = [line for line in section.splitlines() if line.startswith("|")]
    assert len(rows) > 5
    for row in rows:
        what, why, shown_by = (cell.strip() for cell in row.strip("|").split("|"))
        assert what and why and TEST.search(shown_by), row
        assert not TEST.sub("", shown_by).strip(), "nothing else stands there"
        missing = [name for file, name in TEST.findall(shown_by) if name not in functions_in(file)]
        assert not missing
