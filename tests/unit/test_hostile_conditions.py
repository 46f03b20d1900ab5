"""Conditions that somebody wrote to do harm: each is refused, after work that its length bounds.

Work is counted, not timed: every call of a function, Python's or C's, that the parser makes.
"""

from __future__ import annotations

import ast
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import service
from service.language import Limits, load_json, parse_query, parse_source
from service.model import Reason, Refusal
from service.where import PAIRS_PER_DISJUNCT

WIDE = parse_source("s", {"attributes": {f"a{i}": "number" for i in range(64)} | {"kind": "category"}})
DISJUNCTS = 10
#: Calls for a byte of the text, and for a pair of boxes that may be met: some room above what is needed.
CALLS_A_BYTE, CALLS_A_PAIR = 60, 30


class Calls:
    count = 0


@contextmanager
def counted() -> Iterator[Calls]:
    calls = Calls()

    def count(_: FrameType, event: str, __: Any) -> None:
        calls.count += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def refusal(where: Any) -> Refusal:
    """What a body with this condition is refused for, read as HTTP reads it; its work is counted."""
    raw = json.dumps({"id": "q", "source": "s", "where": where}).encode()
    limits = Limits(disjuncts=DISJUNCTS)
    with pytest.raises(Refusal) as refused, counted() as calls:
        parse_query(load_json(raw), {"s": WIDE}, id=None, now_ms=0, limits=limits)
    assert calls.count <= CALLS_A_BYTE * len(raw) + CALLS_A_PAIR * DISJUNCTS * PAIRS_PER_DISJUNCT
    return refused.value


def one_of_two(i: int, j: int = 0) -> str:
    return f"(a{i} == {j} or a{i} == {j + 2})"


OVER = {"lon": "a0", "lat": "a1"}


def star(vertices: int) -> dict[str, Any]:
    """The frames of its edges overlap, each with many: to find out whether any cross takes a look at each
    pair."""
    ring = [
        [(99 if i % 2 else 30) * way(2 * math.pi * i / vertices) for way in (math.cos, math.sin)]
        for i in range(vertices)
    ]
    return {"polygon": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}, **OVER}


def circle(i: int) -> dict[str, Any]:
    return {"circle": {"lon": 180 - i / 1000, "lat": 0, "radius_m": 500_000}, **OVER}


MANY_TRIANGLES = {
    "type": "MultiPolygon",
    "coordinates": [[[[i, 0], [i + 1, 0], [i, 1], [i, 0]]] for i in range(10_000)],
}
RINGS_OF_NOTHING = {"type": "Polygon", "coordinates": [1] * 100_000}

HOSTILE: dict[str, tuple[Any, Reason]] = {
    "deep parentheses": ("(" * 65 + "a0 > 1" + ")" * 65, Reason.LIMIT),
    "a million parentheses": ("(" * 1_000_000, Reason.LIMIT),
    "thirty thousand of other kinds": ("[{(" * 10_000, Reason.LIMIT),
    "a million characters": ("a0 > 1 or " * 100_000 + "a0 > 1", Reason.LIMIT),
    "a name of sixty thousand": ("a" * 60_000 + " > 1", Reason.UNKNOWN_ATTRIBUTE),
    "a text of sixty thousand": ("a0 == '" + "x" * 60_000 + "'", Reason.NOT_A_NUMBER),
    "a text that does not end": ("kind == '" + "\\\\" * 30_000, Reason.SYNTAX),
    "ten thousand nots": ("not " * 10_000 + "a0", Reason.LIMIT),
    "fifty thousand signs": ("a0 > " + "-" * 50_000 + "1", Reason.LIMIT),
    "blanks": (" " * 1_000_000, Reason.SYNTAX),
    "a huge integer": ("a0 > " + "9" * 60_000, Reason.INEXACT),
    "a huge integer in parts": ("a0 > " + "9_" * 30_000 + "9", Reason.INEXACT),
    "a huge exponent": ("a0 > 1e" + "9" * 60_000, Reason.NOT_FINITE),
    "a huge fraction": ("a0 > 1." + "0" * 60_000 + "1e400", Reason.NOT_FINITE),
    "ten thousand comparisons in a chain": (" < ".join(["a0", "1"] * 5_000), Reason.EMPTY_RANGE),
    "a chain of lists": ("a0" + " in (1, 3)" * 6_000, Reason.SYNTAX),
    "a product of 2^60": (" and ".join(one_of_two(i) for i in range(60)), Reason.LIMIT),
    "a negated sum of 2^60": (
        "not (" + " or ".join(f"(a{i} == 1 and a{i + 1} == 1)" for i in range(60)) + ")",
        Reason.LIMIT,
    ),
    "a product of products that are mostly empty": (
        " and ".join(one_of_two(i % 8, 4 * (i // 8)) for i in range(60)),
        Reason.LIMIT,
    ),
    "products inside products": (
        "(" * 60 + "a0 == 1 or a0 == 3" + "".join(f") and {one_of_two(i)}" for i in range(1, 61)),
        Reason.LIMIT,
    ),
    "ten thousand values": ("a0 in (" + ", ".join(map(str, range(0, 20_000, 2))) + ")", Reason.LIMIT),
    "ten thousand values that are none": (
        " and ".join(f"a0 != {i}" for i in range(0, 8_000, 2)),
        Reason.LIMIT,
    ),
    "JSON: fifty thousand disjuncts": ({"any": [{"a0": {"gt": i}} for i in range(50_000)]}, Reason.LIMIT),
    "JSON: a product of 2^60": (
        {"any": [{f"a{i}": {"in": [1, 3]} for i in range(60)}]},
        Reason.LIMIT,
    ),
    "JSON: fifty thousand values": ({"any": [{"a0": {"in": list(range(0, 100_000, 2))}}]}, Reason.LIMIT),
    "JSON: names of nothing": (
        {"any": [{f"b{i}": {"gt": 1} for i in range(20_000)}]},
        Reason.UNKNOWN_ATTRIBUTE,
    ),
    "a star of fifty thousand vertices": ({"any": [{"in": star(50_000)}]}, Reason.LIMIT),
    "ten thousand triangles": ({"any": [{"in": {"polygon": MANY_TRIANGLES, **OVER}}]}, Reason.LIMIT),
    "a ring that is no list": ({"any": [{"in": {"polygon": RINGS_OF_NOTHING, **OVER}}]}, Reason.BAD_VALUE),
    "ten thousand circles at once": ({"any": [{"in": [circle(i) for i in range(10_000)]}]}, Reason.LIMIT),
    "circles of two frames each that have nothing in common": (
        {"any": [{"in": [circle(i) for i in range(15)], "a1": {"gt": 50}}]},
        Reason.EMPTY_RANGE,
    ),
    "a product of shapes": (
        " and ".join(
            f"((a0, a1) in circle(0, {i}, 9e6) or (a0, a1) in circle(1, {i}, 9e6))" for i in range(80)
        ),
        Reason.LIMIT,
    ),
    "JSON: a long name": ({"any": [{"b" * 900_000: {"gt": 1}}]}, Reason.UNKNOWN_ATTRIBUTE),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_refused_in_bounded_work(name: str) -> None:
    where, reason = HOSTILE[name]
    found = refusal(where)
    assert found.reason is reason, found
    assert len(str(found)) < 1_000, "what is refused is not sent back whole"


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 1_000_000,
        b'{"a":' * 200_000,
        b'{"where": ' + b"9" * 1_000_000 + b"}",
        b'{"where": -' + b"9" * 5_000 + b"}",
        b'{"where": 1e' + b"9" * 1_000_000 + b"}",
        b'{"where": "' + b"\\u0041" * 160_000,
        b'{"' + b"a" * 900_000 + b'": 1, "' + b"a" * 900_000 + b'": 2}',
    ],
)
def test_json_that_is_too_much_is_refused_in_bounded_work(raw: bytes) -> None:
    with pytest.raises(Refusal) as refused, counted() as calls:
        load_json(raw)
    assert calls.count < 1_000
    assert len(str(refused.value)) < 1_000


EXECUTABLE = (
    "__import__('os').system('touch {marker}')",
    "a0 > __import__('os').system('touch {marker}')",
    "a0 in [open('{marker}', 'w') for x in (1,)]",
    "(lambda: open('{marker}', 'w'))() > a0",
    "(y := open('{marker}', 'w')) == a0",
    'a0 == f\'{{open("{marker}", "w")}}\'',
    "a0.__class__.__base__.__subclasses__() == 1",
    "a0[open('{marker}', 'w')] > 1",
    "a0 if open('{marker}', 'w') else a1",
    "await a0 > 1",
    "(yield a0) > 1",
    "a0 > 2 ** 2 ** 100",
    "a0 == 'x' * 10**10",
    "*a0, > 1",
    "a0 > 1; open('{marker}', 'w')",
    "a0 > 1\nimport os",
    "a0 > 1 # comment",
    "a0 > 1\\\n",
    "a0 == '\\N{{BULLET}}'",
    "a0 == b'x'",
    "a0 > 1j",
    "a0 > 0x10",
    "a0 > ...",
    "a0 is None",
    "print > a0",
    "a0 > 1 \x00",
)


@pytest.mark.parametrize("text", EXECUTABLE)
def test_what_could_be_run_is_read_and_refused(text: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    found = refusal(text.format(marker=marker))
    assert found.reason in (Reason.SYNTAX, Reason.BAD_OPERATOR, Reason.UNKNOWN_ATTRIBUTE, Reason.NOT_A_NUMBER)
    assert not marker.exists()


#: What turns text or bytes into something that runs.
FORBIDDEN = {
    *("eval", "exec", "compile", "__import__", "breakpoint"),
    *("pickle.loads", "pickle.load", "marshal.loads", "shelve.open", "yaml.load", "yaml.unsafe_load"),
    *("os.system", "os.popen", "subprocess.run", "subprocess.Popen", "subprocess.call"),
}
SERVICE = Path(service.__file__).parent


def _called(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def calls_of(text: str) -> set[str]:
    return {_called(node.func) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)}


def test_nothing_in_the_service_runs_what_it_reads() -> None:
    assert calls_of("x = eval('1')\nos.system(y)") == {"eval", "os.system"}, "the search finds what it is for"
    # Measurements start processes of their own; nothing of a client reaches them.
    files = [file for file in SERVICE.rglob("*.py") if SERVICE / "bench" not in file.parents]
    assert len(files) > 50
    found = {file.name: calls_of(file.read_text()) & FORBIDDEN for file in files}
    # Parquet is read by a process of its own: its command has nothing of a client but the length of a file.
    readers = {"parquet_process.py": {"subprocess.Popen"}}
    assert {name: calls for name, calls in found.items() if calls} == readers


def test_the_count_notices_work_that_is_not_bounded() -> None:
    def squared(text: str) -> None:
        for _ in text:
            for _ in text:
                len(text)

    def work(run: Callable[[str], None], text: str) -> int:
        with counted() as calls:
            run(text)
        return calls.count

    assert work(squared, "x" * 200) > CALLS_A_BYTE * 200
