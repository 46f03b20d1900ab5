"""What people are shown of texts that others wrote."""

from __future__ import annotations

import ast
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

import service.cli
from service.cli.text import all_escaped, escaped, say, warn
from service.cli.upload import tell_failures

#: Of the format characters those that turn the text around them; others join letters and emoji.
TURNING = {*"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}


def test_every_control_is_escaped_and_nothing_else() -> None:
    for number in range(0x110000):
        sign = chr(number)
        is_control = unicodedata.category(sign) in ("Cc", "Zl", "Zp", "Cs") or sign in TURNING
        assert (escaped(sign) != sign) is is_control, hex(number)
        if is_control:
            assert escaped(sign).isascii()
            assert escaped(sign).isprintable()


def test_names_of_fields_are_escaped_too() -> None:
    given = {"a\x1b": ["\n", 1, None, {"b\x9b": 2.5}], "c": True}
    assert all_escaped(given) == {"a\\x1b": ["\\n", 1, None, {"b\\x9b": 2.5}], "c": True}


def test_lines_are_those_that_were_meant(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\nb", "c")
    warn("d\x1b[2J")
    tell_failures([("line 1", {"field": "", "detail": "\x1b[2J\nline 2: good", "reason": "syntax"})], 1)
    out, err = capsys.readouterr()
    assert out == "a\\nb\nc\n"
    assert err == "d\\x1b[2J\nline 1: \\x1b[2J\\nline 2: good (syntax)\n"


def test_only_what_is_for_machines_is_printed_as_it_is() -> None:
    """Whoever adds a ``print`` to a command decides here whom it is for."""
    found: Counter[str] = Counter()
    for file in Path(service.cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                found[file.stem] += "json.dumps" not in ast.unparse(node)
    # Keys as they are made, lines of an export, columns of escaped texts; a benchmark is nobody's text.
    assert +found == {"text": 2, "keys": 1, "queries": 1, "collections": 1, "bench": found["bench"]}
