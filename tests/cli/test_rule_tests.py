"""``rangewatch test`` as a process: exit codes, what goes to which stream, the JUnit file."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from tests.cli.conftest import rangewatch

HEAD = "source: {attributes: {x: number}}\nqueries: [{id: q, where: x > 0}]\nscenarios:\n"
GOOD = HEAD + "- name: holds\n  steps:\n  - {event: {stream_id: s, x: 1}, expect: {match: q, enter: q}}\n"
WRONG = GOOD.replace("enter: q}}", "leave: q}}").replace("holds", "does not hold")
INVALID = GOOD.replace("expect:", "expcet:")


def _file(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_exit_codes_and_output(tmp_path: Path) -> None:
    good = _file(tmp_path, "good.yaml", GOOD)
    wrong = _file(tmp_path, "wrong.yaml", WRONG)
    invalid = _file(tmp_path, "invalid.yaml", INVALID)
    report = tmp_path / "report.xml"

    # The log of a test is not taken from the settings, and no file is left behind.
    passed = rangewatch("test", good, RANGEWATCH_LOG="sqlite:/nowhere/log.db")
    assert (passed.returncode, passed.stderr) == (0, "")
    assert passed.stdout == f"ok    {good}: 1 scenario\n1 scenario: 1 passed, 0 failed\n"

    failed = rangewatch("test", good, wrong)
    assert (failed.returncode, failed.stderr) == (1, "")
    assert f"FAIL  {wrong}:4: does not hold\n" in failed.stdout
    assert "        - {stream_id: s, leave: [q], enter: []}\n" in failed.stdout
    assert "        + {stream_id: s, leave: [], enter: [q], reason: event}\n" in failed.stdout
    assert failed.stdout.endswith("2 scenarios: 1 passed, 1 failed\n")

    refused = rangewatch("test", invalid, wrong, "--junit", report)
    assert refused.returncode == 2
    place = f"{invalid}:6: scenarios[0].steps[0].expcet"
    assert refused.stderr == f"{place}: is no field here; did you mean expect?\n"
    assert "FAIL" in refused.stdout  # the valid file was played
    root = ElementTree.parse(report).getroot()
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "1", "1")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "good.yaml",
        "invalid.yaml",
        "report.xml",
        "wrong.yaml",
    ]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    missing = rangewatch("test", tmp_path / "nothing.yaml")
    assert missing.returncode == 2
    assert missing.stderr == f"rangewatch: there is no file {tmp_path / 'nothing.yaml'}\n"
