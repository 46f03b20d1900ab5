"""The JUnit report, read back by a parser."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from service.rules.play import play_file
from service.rules.report import junit, summary, told
from service.rules.stage import Stage

HEAD = "source: {attributes: {x: number}}\nqueries: [{id: q, where: x > 0}]\nscenarios:\n"
GOOD = HEAD + "- name: holds\n  steps: [restart]\n"
WRONG = (
    HEAD
    + '- name: "odd \\x01 & <name>"\n  steps:\n  - event: {stream_id: "a\\x00b", x: 1}\n    expect: nothing\n'
)
INVALID = "scenarios: []\n"


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    found = []
    for name, text in (("good", GOOD), ("wrong", WRONG + GOOD.removeprefix(HEAD)), ("invalid", INVALID)):
        found.append(tmp_path / f"{name}.yaml")
        found[-1].write_text(text)
    return found


def test_junit(files: list[Path]) -> None:
    results = [play_file(file) for file in files]
    root = ElementTree.fromstring(junit(results))
    assert root.tag == "testsuites"
    assert [root.get(name) for name in ("tests", "failures", "errors")] == ["4", "1", "1"]
    good, wrong, invalid = root
    assert [suite.get("name") for suite in root] == [str(file) for file in files]
    assert [(suite.get("tests"), suite.get("failures"), suite.get("errors")) for suite in root] == [
        ("1", "0", "0"),
        ("2", "1", "0"),
        ("1", "0", "1"),
    ]
    (case,) = good
    assert (case.get("name"), case.get("line"), case.get("file")) == ("holds", "4", str(files[0]))
    assert not list(case) and float(case.get("time", "-1")) >= 0
    failed, passed = wrong
    assert failed.get("name") == "odd \N{REPLACEMENT CHARACTER} & <name>"  # XML cannot hold the character
    (failure,) = failed
    assert failure.tag == "failure" and f"{files[1]}:6" in failure.get("message", "")
    assert "+ {stream_id: " in (failure.text or "") and "queries: [q]" in (failure.text or "")
    assert passed.get("name") == "holds" and not list(passed)
    (error,) = invalid[0]
    assert error.tag == "error" and "scenarios" in error.get("message", "")


def test_the_summary_counts(files: list[Path]) -> None:
    results = [play_file(file) for file in files]
    assert summary(results) == "3 scenarios: 2 passed, 1 failed; 1 file not valid"
    assert summary(results[:1]) == "1 scenario: 1 passed, 0 failed"


def test_a_service_that_fails_is_an_error_of_its_scenario_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(stage: Stage) -> None:
        raise ZeroDivisionError("by a test")

    monkeypatch.setattr(Stage, "restart", broken)
    file = tmp_path / "t.yaml"
    file.write_text("""\
source: {attributes: {x: number}}
queries: [{id: q, where: x > 0}]
scenarios:
- name: fails
  steps:
  - {event: {stream_id: s, x: 1}, expect: nothing}
  - restart
  - {event: {stream_id: s, x: 2}, expect: any}
- name: holds
  steps:
  - {event: {stream_id: s, x: 1}, expect: {match: q, enter: q}}
""")
    result = play_file(file)
    assert [played.passed for played in result.played] == [False, True]
    lines = list(told(result))
    assert lines[0] == f"ERROR {file}:4: fails"
    assert lines[-1].strip() == f"{file}:7: the service failed: ZeroDivisionError: by a test"
    assert f"{file}:6: event s" in lines[1]
    assert summary([result]) == "2 scenarios: 1 passed, 1 failed"
    root = ElementTree.fromstring(junit([result]))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "0", "1")
    (error,) = root.iter("error")
    assert "Traceback" in (error.text or "")
