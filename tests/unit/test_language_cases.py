"""The conformance cases, as far as the language alone decides them: which bodies it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from service.language import Limits, load_json, parse_query, parse_source, patch_body, query_body
from service.model import Refusal, Source
from tests.cases.table import CASES, Case

NOW_MS = 1_700_000_000_000

#: Refused by what is registered already, not by the language.
CATALOG = {"exists", "unknown_id"}


class Step(NamedTuple):
    label: str
    body: Any
    sources: dict[str, Source]
    refused: frozenset[str]


def source_of(definition: dict[str, Any], name: str) -> Source:
    return parse_source(name, {"attributes": definition["attributes"], **definition["policies"]})


def steps(case: Case) -> Iterator[Step]:
    """Every body that the case sends to be parsed, with the reasons of which any is right (none: taken)."""
    sources = {name or "own": source_of(body, name or "own") for name, body in case.sources.items()}
    expected: dict[int, dict[str, Any]] = {row["step"]: row for row in case.body["expect"] if "status" in row}
    live: dict[str, dict[str, Any]] = {}
    for number, step in enumerate(case.steps):
        row = expected.get(number, {})
        reasons = frozenset(row.get("refused", ["any"] if row else []))
        label = f"{case.id}[{number}]"
        name = step.get("source", "own")
        match step:
            case {"op": "register" | "put", "query": query}:
                bodies = [{**query, "source": name}]
            case {"op": "bulk", "queries": queries}:
                bodies = [{**query, "source": name} for query in queries]
            case {"op": "patch", "id": id, "set": changes}:
                bodies = [patch_body(live[id], changes)] if id in live else []
            case {"op": "raw", "to": "queries", "text": text}:
                bodies = [text.replace("@source@", name)]
            case _:
                bodies = []
        for body in bodies:
            if reasons & CATALOG or (isinstance(body, dict) and moved(body, live)):
                continue
            yield Step(label, body, sources, reasons)
            if isinstance(body, dict) and not reasons:
                live[body["id"]] = body


def moved(body: dict[str, Any], live: dict[str, dict[str, Any]]) -> bool:
    """Whether it asks for another source than the living query of that id has: for the catalog to refuse."""
    return body["id"] in live and live[body["id"]]["source"] != body["source"]


STEPS = [step for case in CASES for step in steps(case)]
TAKEN = [step for step in STEPS if not step.refused]
REFUSED = [step for step in STEPS if step.refused]


def judge(step: Step) -> Any:
    body = load_json(step.body.encode()) if isinstance(step.body, str) else step.body
    return parse_query(body, step.sources, id=None, now_ms=NOW_MS, limits=Limits())


def test_the_cases_are_there() -> None:
    assert len(REFUSED) > 50
    assert len(TAKEN) > 2000


@pytest.mark.parametrize("step", REFUSED, ids=[step.label for step in REFUSED])
def test_a_refused_body_is_refused_with_a_reason_that_is_right(step: Step) -> None:
    with pytest.raises(Refusal) as caught:
        judge(step)
    if step.refused != {"any"}:
        assert caught.value.reason in step.refused


def test_every_other_body_is_taken_and_comes_back_equal() -> None:
    for step in TAKEN:
        query = judge(step)
        whole = json.dumps(query_body(query)).encode()
        again = parse_query(load_json(whole), step.sources, id=None, now_ms=NOW_MS, limits=Limits())
        assert again == query, step.label
