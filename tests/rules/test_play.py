"""What is not as expected is a failure, with a diff that shows both sides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from service.rules.play import play_file
from service.rules.report import told

HEAD = """\
source: {attributes: {x: number}}
queries: [{id: q, where: x > 0}, {id: r, where: x > 10}]
scenarios:
- name: one
  steps:
"""
Played = Callable[[str], str]


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    """Plays the steps of one scenario and returns its failures as they are told, or the line that says ok."""
    monkeypatch.chdir(tmp_path)

    def play(steps: str, head: str = HEAD) -> str:
        file = Path("t.yaml")
        file.write_text(head + steps)
        result = play_file(file)
        assert result.error is None
        first, *rest = told(result)
        return "\n".join(rest) if first.startswith("FAIL  t.yaml:") else first

    return play


def test_all_is_as_expected(played: Played) -> None:
    text = played("  - {event: {stream_id: s, ts: 1, x: 1}, expect: {match: q, enter: q}}\n")
    assert text == "ok    t.yaml: 1 scenario"


def test_a_wrong_record_shows_both_sides_and_what_agrees(played: Played) -> None:
    text = played("""\
  - {event: {stream_id: s, ts: 1, x: 1}, expect: any}
  - {event: {stream_id: s, ts: 2, x: 11}, expect: {match: [q, r], leave: q, seq: 3}}
""")
    assert (
        text
        == """\
      t.yaml:7: event s at 2
          borders
        - {stream_id: s, leave: [q], enter: [], seq: 3}
        + {stream_id: s, leave: [], enter: [r], reason: event, seq: 2}"""
    )


def test_what_agrees_is_shown_beside_what_does_not(played: Played) -> None:
    text = played("""\
  - {event: {stream_id: a, ts: 1, x: 1}}
  - {event: {stream_id: b, ts: 1, x: 1}}
  - expect:
      matches: any
      borders:
        - {stream_id: b, enter: [r]}
        - {stream_id: a, enter: [q]}
""")
    assert (
        text
        == """\
      t.yaml:8: expect
          borders
        - {stream_id: b, enter: [r]}
        + {stream_id: b, enter: [q], reason: event}
          {stream_id: a, enter: [q]}"""
    )


def test_missing_and_unexpected_records(played: Played) -> None:
    text = played("  - {event: {stream_id: s, ts: 1, x: 1}, expect: {stream_id: t, match: q, enter: q}}\n")
    assert (
        text
        == """\
      t.yaml:6: event s at 1
          matches
        - {stream_id: t, queries: [q]}
        + {stream_id: s, queries: [q]}
          borders
        - {stream_id: t, leave: [], enter: [q], cross: []}
        + {stream_id: s, enter: [q], reason: event}"""
    )


def test_a_dead_letter_that_nobody_expects(played: Played) -> None:
    text = played("  - {event: {stream_id: s, ts: 1, x: low}, expect: nothing}\n")
    assert "+ {stream_id: s, reason: not_a_number, detail: " in text
    assert "dead_letter" in text


def test_one_record_too_few_and_one_too_many(played: Played) -> None:
    for expect in ("[{match: q, enter: q}, {match: q}]", "{enter: q}", "nothing"):
        assert "t.yaml:6" in played(f"  - {{event: {{stream_id: s, x: 1}}, expect: {expect}}}\n")


def test_order_counts_within_a_stream_only(played: Played) -> None:
    events = "  - {events: [{stream_id: a, x: 1}, {stream_id: b, x: 1}, {stream_id: a, x: 0}]}\n"
    a_in, a_out, b_in = (
        "{stream_id: a, enter: q}",
        "{stream_id: a, leave: q}",
        "{stream_id: b, enter: q}",
    )
    for order in ((a_in, a_out, b_in), (b_in, a_in, a_out), (a_in, b_in, a_out)):
        head = "compare: [borders]\n" + HEAD
        assert played(f"{events}  - expect: [{', '.join(order)}]\n", head).startswith("ok")
    wrong = played(f"{events}  - expect: [{a_out}, {a_in}, {b_in}]\n", "compare: [borders]\n" + HEAD)
    assert "- {stream_id: a, leave: [q], enter: []}" in wrong


def test_only_named_fields_are_compared(played: Played) -> None:
    head = "compare: [borders]\n" + HEAD
    event = "  - event: {stream_id: s, ts: 5, x: 1}\n    expect: "
    good = ("ts: 5", "seq: 1", "attrs: {}", "reason: event", "source: test", "tenant: default")
    bad = ("ts: 6", "seq: 2", "attrs: {x: 1}", "reason: updated", "source: other", "tenant: other")
    for right, wrong in zip(good, bad, strict=True):
        assert played(f"{event}{{enter: q, {right}}}\n", head).startswith("ok")
        assert wrong in played(f"{event}{{enter: q, {wrong}}}\n", head)
    # By topic, even a list of ids that is not named is not compared.
    assert played(f"{event}{{borders: [{{seq: 1}}]}}\n", head).startswith("ok")
    assert "seq: 2" in played(f"{event}{{borders: [{{seq: 2}}]}}\n", head)


def test_a_topic_that_is_not_named_must_have_nothing(played: Played) -> None:
    text = played("  - {event: {stream_id: s, x: 1}, expect: {borders: [{enter: [q]}]}}\n")
    assert "matches" in text and "+ {stream_id: s, queries: [q]}" in text


def test_late_must_be_as_it_is_named(played: Played) -> None:
    head = "compare: [matches]\n" + HEAD
    first = "  - {event: {stream_id: s, ts: 5, x: 1}, expect: {match: q, late: false}}\n"
    second = "  - {{event: {{stream_id: s, ts: 4, x: 1}}, expect: {{match: q, late: {}}}}}\n"
    assert played(first + second.format("true"), head).startswith("ok")
    assert "+ {stream_id: s, queries: [q], late: true}" in played(first + second.format("false"), head)


def test_what_nobody_looks_at_is_a_failure(played: Played) -> None:
    text = played("""\
  - {event: {stream_id: s, ts: 1, x: 1}, expect: any}
  - {event: {stream_id: s, ts: 2, x: 11}}
  - at: 50
""")
    assert text.startswith(
        "      t.yaml:4: at the end: nobody expects what came since line 7, event s at 2\n"
    )
    assert "+ {stream_id: s, enter: [r], reason: event}" in text


def test_a_refusal_that_nobody_expects_and_one_that_does_not_come(played: Played) -> None:
    text = played("""\
  - delete: nobody
  - {delete: q, refused: unknown_id}
  - {post: {id: r, where: x > 0}, refused: {reason: exists, field: where}}
  - {remove_stream: s, refused: exists}
""")
    assert (
        text
        == """\
      t.yaml:6: delete nobody: was refused: id: there is no query 'nobody' (unknown_id)
      t.yaml:7: delete q: was not refused
        - {reason: unknown_id}
      t.yaml:8: post r: was refused otherwise
        - {reason: exists, field: where}
        + {reason: exists, field: id}
          query 'r' exists; use PUT to replace it
      t.yaml:9: remove_stream s: was refused otherwise
        - {reason: exists}
        + {reason: unknown_id, field: id}
          source 'test' has no stream 's'"""
    )


def test_long_lists_are_shown_by_what_differs(played: Played) -> None:
    ids = [f"q{number:02}" for number in range(40)]
    queries = ", ".join(f"{{id: {id}, where: x > 0}}" for id in ids)
    head = f"compare: [borders]\nsource: {{attributes: {{x: number}}}}\nqueries: [{queries}]\nscenarios:\n- "
    wanted = ", ".join([*ids[1:], "other"])
    step = f"name: one\n  steps:\n  - {{event: {{stream_id: s, x: 1}}, expect: {{enter: [{wanted}]}}}}\n"
    text = played(step, head)
    assert "... 40 in all]" in text and len(max(text.splitlines(), key=len)) < 200
    assert "enter: missing [other], unexpected [q00]" in text


def test_the_environment_has_no_say(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANGEWATCH_MAX_STREAMS", "1")
    events = "".join(f"  - {{event: {{stream_id: {id}, x: 0}}, expect: nothing}}\n" for id in "ab")
    assert played(events).startswith("ok")


def test_a_failure_does_not_hide_the_next(played: Played) -> None:
    text = played("""\
  - {event: {stream_id: s, ts: 1, x: 1}, expect: nothing}
  - {event: {stream_id: s, ts: 2, x: 0}, expect: {leave: q}}
  - {event: {stream_id: s, ts: 3, x: 1}, expect: nothing}
""")
    assert "t.yaml:6" in text and "t.yaml:8" in text and "t.yaml:7" not in text


def test_texts_that_yaml_would_take_for_something_else_are_quoted(played: Played) -> None:
    text = played("  - {event: {stream_id: 'null', ts: 1, x: 1}, expect: {enter: q}}\n")
    assert '+ {stream_id: "null", queries: [q]}' in text


def test_the_source_is_shown_where_there_are_several(played: Played) -> None:
    head = """\
sources: [{name: a, attributes: {x: number}}, {name: b, attributes: {x: number}}]
queries: [{id: p, source: a, where: x > 0}, {id: q, source: b, where: x > 0}]
compare: [borders]
scenarios:
- name: one
  steps:
"""
    text = played(
        """\
  - {event: {stream_id: s, x: 1}, source: a}
  - {event: {stream_id: s, x: 1}, source: b}
  - expect: {enter: q}
""",
        head,
    )
    assert "  {stream_id: s, enter: [q]}" in text  # the newest event is of source b
    assert "+ {stream_id: s, enter: [p], reason: event, source: a}" in text


def test_the_matches_of_an_event_have_no_order(played: Played) -> None:
    head = HEAD.replace("{id: r,", "{id: r, select: [x],").replace(
        "scenarios", "compare: [matches]\nscenarios"
    )
    for expect in ("{match: q}, {match: r, attrs: {x: 11}}", "{match: r, attrs: {x: 11}}, {match: q}"):
        assert played(f"  - {{event: {{stream_id: s, x: 11}}, expect: [{expect}]}}\n", head).startswith("ok")


def test_time_passes_without_an_event(played: Played) -> None:
    text = played("""\
  - {event: {stream_id: s, ts: 1000, x: 1}, expect: any}
  - advance: 30s
  - at: 40000
  - advance: 500
  - {delete: q, expect: {leave: q, reason: deleted, ts: 40500}}
""")
    assert text.startswith("ok")


def test_a_stream_id_that_no_key_can_be(played: Played) -> None:
    step = r"""  - {raw: '{"stream_id": "\ud800", "x": 1}', expect: {refused: malformed, stream_id: null}}"""
    assert played(step + "\n").startswith("ok")


def test_aggregates_are_told_apart_by_query_and_a_count_of_0_is_shown(played: Played) -> None:
    head = """\
source: {attributes: {x: number}}
compare: [aggregates]
queries: [{id: p, where: x > 0, aggregates: {every: 1}}, {id: q, where: x < 9, aggregates: {every: 1}}]
scenarios:
- name: one
  steps:
"""
    text = played(
        """\
  - {event: {stream_id: s, ts: 1, x: 1}, expect: {aggregates: [{query: q, count: 2}, {query: p, count: 1}]}}
  - {event: {stream_id: s, ts: 3, x: -1}, expect: nothing}
""",
        head,
    )
    assert (
        text
        == """\
      t.yaml:7: event s at 1
          aggregates
        - {query: q, count: 2}
        + {query: q, ts: 1, count: 1, of: {}}
          {query: p, count: 1}
      t.yaml:8: event s at 3
          aggregates
        + {query: p, ts: 3, count: 0, of: {}}"""
    )
