"""The threat model: every claim names tests, and each of them is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("|")][2:]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def functions_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_threat_has_an_answer_and_a_test() -> None:
    assert len(ROWS) > 10
    for row in ROWS:
        threat, answer, held_by = (cell.strip() for cell in row.strip("|").split("|"))
        assert threat
        assert answer
        assert TEST.search(held_by), threat
        assert not TEST.sub("", held_by).strip(), "nothing else stands there"


def test_every_test_that_is_named_exists() -> None:
    named = TEST.findall(PAGE)
    assert len(named) >= len(ROWS)
    missing = [f"{file}::{name}" for file, name in named if name not in functions_in(file)]
    assert not missing
