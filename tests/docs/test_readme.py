"""The README tells the truth: its commands exist, its first query fires, its links lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from service.__main__ import parser
from tests.api.harness import running

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
COMMANDS = [
    line.split("#")[0].strip()
    for language, block in BLOCKS
    if not language
    for line in block.replace("\\\n", " ").splitlines()
    if line.strip()
]


def test_it_is_short_enough_to_be_read() -> None:
    assert len(README.splitlines()) <= 150


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`?make ([a-z]+)", README))
    assert {"run", "test", "setup"} <= named <= targets


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith(".venv/bin/rangewatch")])
def test_commands_parse(command: str) -> None:
    arguments = shlex.split(command)[1:]
    assert parser().parse_args(arguments).run is not None


def test_every_command_is_one_that_a_test_knows() -> None:
    known = ("make ", "curl ", ".venv/bin/rangewatch ", ".venv/bin/python -m spark_connector ")
    assert COMMANDS
    assert [command for command in COMMANDS if not command.startswith(known)] == []


def test_the_first_query_fires(tmp_path: Path) -> None:
    """Runs the README's own curl lines, as they stand, and the sentence that follows them."""
    curls = [command for command in COMMANDS if command.startswith("curl")]
    assert len(curls) == 8
    with running(tmp_path) as service:
        address = str(service.client.base_url).removeprefix("http://").rstrip("/")
        answers = [_curl(command, address) for command in curls[:5]]
        source, query, events, stream, borders = answers
        assert source["name"] == "fleet"
        assert query["state"] == "active"
        kinds = {output["topic"]: output["value"] for output in events["outputs"]}
        assert kinds["matches"]["queries"] == ["harbour"]
        assert kinds["borders"]["enter"] == ["harbour"]
        assert stream["inside"] == ["harbour"]
        assert [record["value"]["enter"] for record in borders["records"]] == [["harbour"]]
        why, trace, safe = (_curl(command, address) for command in curls[5:])
        (failure,) = why["disjuncts"][0]["fails"]
        assert (failure["attribute"], round(failure["margin"]["distance"], 9)) == ("lat", 0.1)
        assert [event["matched"] for event in trace["events"]] == [True]
        assert (safe["sides"][0]["lower"], safe["sides"][0]["upper"]) == (29.5, 29.8)
        away = _curl(curls[2].replace('"lat": 29.6', '"lat": 0'), address)
        assert [output["value"]["leave"] for output in away["outputs"]] == [["harbour"]]
        _curl(curls[2], address)
        service.client.delete("/v1/queries/harbour").raise_for_status()
        after = _curl(curls[4].replace("after=0", "after=-1"), address)
        last = after["records"][-1]["value"]
        assert (last["reason"], last["leave"]) == ("deleted", ["harbour"])


def _curl(command: str, address: str) -> Any:
    arguments = shlex.split(command.replace("localhost:8080", address))
    done = subprocess.run(
        [*arguments, "--silent", "--show-error"], capture_output=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


def test_paths_exist() -> None:
    linked = re.findall(r"\]\(([^)#]+)\)", README)
    named = re.findall(r"`((?:service|deploy|docs|spark_connector)/[\w./]*)`", README)
    missing = [path for path in (*linked, *named) if not (ROOT / path).exists()]
    assert linked and named and not missing


def test_the_spark_lines_are_those_that_are_tested() -> None:
    (python,) = [block for language, block in BLOCKS if language == "python"]
    assert python in (ROOT / "docs" / "spark.md").read_text()
