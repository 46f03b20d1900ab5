"""Files that are no rule tests: refused before anything is played, with the line and the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.rules.document import RuleFileError
from service.rules.play import MAX_FILE_BYTES, play_file
from service.rules.scenarios import read_scenarios

HEAD = "source: {attributes: {x: number}}\nqueries: [{id: q, where: x > 0}]\nscenarios:\n"
ONE = HEAD + "- name: one\n  steps:\n"


@pytest.mark.parametrize(
    ("text", "line", "field", "detail"),
    [
        ("- 1", 1, "", "must be a mapping"),
        ("source: {}\n", 1, "", "has no `scenarios`"),
        (HEAD + "- steps: []\n", 4, "scenarios[0]", "has no `name`"),
        (HEAD + "- name: one\n", 4, "scenarios[0]", "has no `steps`"),
        (HEAD + "- {name: one, steps: []}\n", 4, "scenarios[0].steps", "at least one step"),
        ("scenarios: []\nsource: {}\n", 1, "scenarios", "at least one scenario"),
        ("scenarios:\n- name: one\n  steps: [restart]\n", 2, "scenarios[0]", "has no `source`"),
        (
            HEAD + "- {name: a, steps: [restart]}\n- {name: a, steps: [restart]}\n",
            5,
            "scenarios[1].name",
            "is the name of another",
        ),
        (HEAD + "- name: a\n  stpes: []\n", 5, "scenarios[0].stpes", "did you mean steps"),
        ("sources: []\n" + ONE + "  - restart\n", 1, "sources", "stands beside `source`"),
        (ONE + "  - evnt: {}\n", 6, "scenarios[0].steps[0].evnt", "did you mean event"),
        (ONE + "  - {}\n", 6, "scenarios[0].steps[0]", "does nothing"),
        (ONE + "  - event: {}\n    tombstone: a\n", 7, "scenarios[0].steps[0].tombstone", "stands beside"),
        (ONE + "  - event: [1]\n", 6, "scenarios[0].steps[0].event", "must be a mapping"),
        (ONE + "  - events: {x: 1}\n", 6, "scenarios[0].steps[0].events", "must be a list"),
        (ONE + "  - raw: 5\n", 6, "scenarios[0].steps[0].raw", "in quotes"),
        (ONE + "  - raw_hex: '0'\n", 6, "scenarios[0].steps[0].raw_hex", "hexadecimal"),
        (ONE + "  - put: {where: x > 0}\n", 6, "scenarios[0].steps[0].put", "has no `id`"),
        (ONE + "  - patch: {where: x > 0}\n", 6, "scenarios[0].steps[0].patch", "has no `id`"),
        (ONE + "  - delete: [q]\n", 6, "scenarios[0].steps[0].delete", "must be a text"),
        (ONE + "  - at: 5s\n", 6, "scenarios[0].steps[0].at", "must be a time"),
        (ONE + "  - advance: 5 parsecs\n", 6, "scenarios[0].steps[0].advance", "must be whole milliseconds"),
        (ONE + "  - advance: 0s\n", 6, "scenarios[0].steps[0].advance", "more than 0"),
        (ONE + "  - advance:\n", 6, "scenarios[0].steps[0].advance", "must be whole milliseconds"),
        (ONE + "  - restart: true\n", 6, "scenarios[0].steps[0].restart", "has no value"),
        (ONE + "  - delete: q\n    source: s\n", 7, "scenarios[0].steps[0].source", "does not belong"),
        (ONE + "  - tombstone: s\n    source: s\n", 7, "scenarios[0].steps[0].source", "there are test"),
        (
            ONE + "  - tombstone: s\n    refused: late\n",
            7,
            "scenarios[0].steps[0].refused",
            "is a dead letter",
        ),
        (
            ONE + "  - delete: q\n    refused: exist\n",
            7,
            "scenarios[0].steps[0].refused",
            "did you mean exists",
        ),
        (ONE + "  - delete: q\n    refused: {}\n", 7, "scenarios[0].steps[0].refused", "has no `reason`"),
        ("compare: [border]\n" + ONE + "  - restart\n", 1, "compare[0]", "did you mean borders"),
        ("compare: []\n" + ONE + "  - restart\n", 1, "compare", "must name a topic"),
        ("settings: {max_stream: 1}\n" + ONE + "  - restart\n", 1, "settings.max_stream", "max_streams"),
        ("settings: {max_streams: 0}\n" + ONE + "  - restart\n", 1, "settings.max_streams", "greater than"),
        ("settings: {index: tree}\n" + ONE + "  - restart\n", 1, "settings.index", "must be one of"),
    ],
)
def test_mistakes_of_scenarios(text: str, line: int, field: str, detail: str) -> None:
    with pytest.raises(RuleFileError, match=detail) as caught:
        read_scenarios(text)
    assert (caught.value.line, caught.value.field) == (line, field)


@pytest.mark.parametrize(
    ("expect", "field", "detail"),
    [
        ("{entr: q}", ".entr", "did you mean enter"),
        ("{queries: q}", ".queries", "is called `match`"),
        ("{ts: 1}", "", "names no record"),
        ("{match: q, seq: x}", ".seq", "whole number"),
        ("{match: [1]}", ".match[0]", "must be a text"),
        ("{match: q, detail: x}", ".detail", "no record of matches"),
        ("{enter: q, late: true}", ".late", "no record of borders"),
        ("{refused: latte}", ".refused", "did you mean late"),
        ("{enter: q, reason: delete}", ".reason", "did you mean deleted"),
        ("{refused: late, enter: q}", ".refused", "neither matches nor crosses"),
        ("{borders: [{entr: [q]}]}", ".borders[0].entr", "did you mean enter"),
        ("{borders: {enter: [q]}}", ".borders", "must be a list"),
        ("{borders: [], match: q}", ".borders", "is no field here"),
        ("some", "", "must be a list"),
    ],
)
def test_mistakes_of_expectations(expect: str, field: str, detail: str) -> None:
    text = ONE + f"  - event: {{stream_id: s, ts: 1, x: 1}}\n    expect: {expect}\n"
    with pytest.raises(RuleFileError, match=detail) as caught:
        read_scenarios(text)
    assert (caught.value.line, caught.value.field) == (7, f"scenarios[0].steps[0].expect{field}")


def test_what_is_not_compared_cannot_be_expected() -> None:
    for expect in ("{match: q, enter: q}", "{matches: []}"):
        text = f"compare: [borders]\n{ONE}  - event: {{stream_id: s, x: 1}}\n    expect: {expect}\n"
        with pytest.raises(RuleFileError, match="leaves matches out"):
            read_scenarios(text)


def test_a_compact_record_before_any_event_names_its_stream() -> None:
    with pytest.raises(RuleFileError, match="name the `stream_id`"):
        read_scenarios(ONE + "  - delete: q\n    expect: {leave: q}\n")
    read_scenarios(ONE + "  - delete: q\n    expect: {stream_id: s, leave: q}\n")


def test_with_several_sources_everything_names_its_own() -> None:
    head = "sources: [{name: a, attributes: {x: number}}, {name: b, attributes: {x: number}}]\nscenarios:\n"
    steps = {"post: {id: q, where: x > 0}": "post", "event: {stream_id: s, x: 1}": "event"}
    for step, field in steps.items():
        with pytest.raises(RuleFileError, match="must name its `source`; there are a, b") as caught:
            read_scenarios(f"{head}- name: one\n  steps:\n  - {step}\n")
        assert (caught.value.line, caught.value.field) == (5, f"scenarios[0].steps[0].{field}")


@pytest.mark.parametrize(
    ("text", "line", "field", "detail"),
    [
        ("source: {attributes: {x: nubmer}}\nqueries: []\n", 1, "source.attributes.x", "bad_value"),
        (
            "source:\n  attributes: {x: number}\nqueries:\n- id: q\n  where: {any: [{x: {gte: low}}]}\n",
            5,
            "queries[0].where.any[0].x.gte",
            "not_a_number",
        ),
        ("source: {attributes: {x: number}}\nqueries: [{id: q}]\n", 2, "queries[0].where", "missing_field"),
    ],
)
def test_what_a_scenario_begins_with_must_not_be_refused(
    text: str, line: int, field: str, detail: str, tmp_path: Path
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text + "scenarios:\n- {name: one, steps: [restart]}\n")
    error = play_file(file).error
    assert error is not None and detail in error.detail
    assert (error.line, error.field) == (line, field)


def test_time_never_goes_back(tmp_path: Path) -> None:
    file = tmp_path / "back.yaml"
    file.write_text(ONE + "  - at: 1000\n  - at: 1000\n  - at: 999\n")
    error = play_file(file).error
    assert error is not None and "time never goes back" in error.detail
    assert (error.line, error.field) == (8, "scenarios[0].steps[2].at")


def test_time_has_an_end(tmp_path: Path) -> None:
    file = tmp_path / "end.yaml"
    for step in (f"at: {2**53 + 1}", "advance: 1"):
        file.write_text(f"{ONE}  - at: {2**53}\n  - {step}\n")
        error = play_file(file).error
        assert error is not None and f"leads to {2**53 + 1}" in error.detail
        assert (error.line, error.field) == (7, f"scenarios[0].steps[1].{step.split(':')[0]}")


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    start = ONE + "  - restart\n#"
    file.write_text(start + " " * (MAX_FILE_BYTES - len(start)))
    assert play_file(file).error is None
    file.write_text(start + " " * (MAX_FILE_BYTES - len(start) + 1))
    error = play_file(file).error
    assert error is not None and "larger than 1048576 bytes" in error.detail


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "bytes.yaml"
    file.write_bytes(b"scenarios:\n- name: \xff\n")
    error = play_file(file).error
    assert error is not None and (error.line, error.detail) == (2, "is not UTF-8")
