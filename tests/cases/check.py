"""Compares what a driver saw with what a case expects."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from importlib import resources
from typing import Any

from jsonschema import Draft202012Validator

from tests.cases.table import Case

SCHEMAS = {
    name: Draft202012Validator(
        json.loads((resources.files("service") / "schemas" / f"{name}.json").read_text())
    )
    for name in ("matches", "borders", "dead_letter")
}


def load_strict(raw: bytes) -> Any:
    """JSON, and no key twice."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in items]
        assert len(keys) == len(set(keys)), f"a key twice in {raw!r}"
        return dict(items)

    return json.loads(raw, object_pairs_hook=pairs)


@dataclass
class Seen:
    """All that a driver has seen of one case. ``places`` maps (topic, offset) of a message that was sent,
    and ("command", offset) of a command, to its step; ``answers`` maps a step to (status, reason)."""

    places: dict[tuple[str, int], int] = field(default_factory=dict)
    answers: dict[int, tuple[int, str | None]] = field(default_factory=dict)
    records: list[tuple[str, bytes | None, bytes]] = field(default_factory=list)
    source_names: dict[str | None, str] = field(default_factory=dict)


Row = tuple[int, int]


def check(case: Case, seen: Seen) -> None:
    """Asserts everything that the README of the cases asks for."""
    expected = _expected(case, seen)
    actual: dict[Row, dict[str, Any]] = defaultdict(lambda: {"match": set(), "borders": [], "refused": []})
    seqs: dict[tuple[str, str], int] = {}
    inside: dict[tuple[str, str], set[str]] = defaultdict(set)
    for topic, key, value in seen.records:
        record = load_strict(value)
        SCHEMAS[topic].validate(record)
        row = _row(case, seen, record)
        if topic == "dead_letter":
            actual[row]["refused"].append(record["reason"])
            continue
        assert record["tenant"] == "default"
        assert key == record["stream_id"].encode()
        if topic == "matches":
            _check_ids(record["queries"])
            assert record["queries"]
            assert not actual[row]["match"] & set(record["queries"]), "an id twice"
            actual[row]["match"] |= set(record["queries"])
            actual[row]["late"] = record.get("late")
            continue
        assert topic == "borders"
        for kind in ("leave", "enter", "cross"):
            _check_ids(record[kind])
        assert record["leave"] or record["enter"] or record["cross"], "an empty border record"
        stream = (record["source"], record["stream_id"])
        expected_seq = seqs.get(stream, 0) + 1
        if record["seq"] == 1 and not inside[stream]:
            expected_seq = 1
        assert record["seq"] == expected_seq, f"seq {record['seq']} after {seqs.get(stream)} in {record}"
        seqs[stream] = record["seq"]
        assert set(record["leave"]) <= inside[stream] or _partial(case), f"leave without enter: {record}"
        inside[stream] -= set(record["leave"])
        assert not set(record["enter"]) & inside[stream], f"enter twice: {record}"
        inside[stream] |= set(record["enter"])
        actual[row]["borders"].append(record)
    _compare(expected, actual)
    _compare_answers(case, seen)


def _partial(case: Case) -> bool:
    """Whether a query of the case asks for only one of the two border kinds."""
    ons = [body.get("on") for step in case.steps for body in (step.get("query"), step.get("set")) if body]
    return any(on is not None and ("enter" in on) != ("leave" in on) for on in ons)


def _check_ids(ids: list[str]) -> None:
    assert ids == sorted(set(ids)), f"ids not sorted or not unique: {ids[:10]}"


def _row(case: Case, seen: Seen, record: dict[str, Any]) -> Row:
    origin = record["origin"]
    if "timer" in origin:
        assert origin == {"timer": record["reason"]}
        return _first_step_at(case, record["ts"]), 0
    if "command" in origin and record["reason"] == "expired":
        return _first_step_at(case, min(_expiries(case, record["leave"]))), 0
    if "command" in origin:
        return seen.places["command", origin["command"]], 0
    place = seen.places.get((origin["topic"], origin["offset"]))
    if place is None:  # the tombstone that DELETE of a stream wrote: the only message nobody here sent
        assert record["reason"] == "stream_removed", f"nobody sent the cause of {record}"
        candidates = [
            number
            for number, step in enumerate(case.steps)
            if step["op"] == "delete_stream" and step["stream_id"] == record["stream_id"]
        ]
        before = [seen.places[k] for k in seen.places if k[0] == origin["topic"] and k[1] < origin["offset"]]
        place = min(number for number in candidates if number > max(before, default=-1))
    return place, origin["row"] if case.steps[place]["op"] == "batch" else 0


def _first_step_at(case: Case, due: int) -> int:
    """The step that moves the time up to something that is due, or past it."""
    for number, step in enumerate(case.steps):
        events = [step["event"]] if "event" in step else step.get("events", [])
        times = [step.get("now"), *(event.get("ts") for event in events if isinstance(event, dict))]
        if any(isinstance(time, int) and time >= due for time in times):
            return number
    raise AssertionError(f"no step lets it become {due}")


def _expiries(case: Case, ids: list[str]) -> list[int]:
    bodies = [body for step in case.steps if (body := step.get("query") or step.get("set"))]
    times = [body["expires_at"] for body in bodies if body.get("id") in ids and body.get("expires_at")]
    return [
        int(datetime.fromisoformat(time).timestamp() * 1000) if isinstance(time, str) else time
        for time in times
    ]


def _expected(case: Case, seen: Seen) -> dict[Row, dict[str, Any]]:
    rows: dict[Row, dict[str, Any]] = {}
    for row in case.body["expect"]:
        if "match" in row or "borders" in row or ("refused" in row and "status" not in row):
            rows[row["step"], row.get("row", 0)] = row
    return rows


def _compare(expected: dict[Row, dict[str, Any]], actual: dict[Row, dict[str, Any]]) -> None:
    for place in sorted(expected.keys() | actual.keys()):
        want, got = expected.get(place, {}), actual.get(place, {"match": set(), "borders": [], "refused": []})
        assert got["match"] == set(want.get("match", ())), (
            f"match at {place}: {got['match']} != {want.get('match')}"
        )
        if got["match"]:
            assert bool(got["late"]) == bool(want.get("late")), f"late at {place}"
        if want.get("refused"):
            assert len(got["refused"]) == 1, f"refusals at {place}: {got['refused']}"
            assert got["refused"][0] in want["refused"], f"refused at {place}: {got['refused']}"
        else:
            assert not got["refused"], f"refused at {place}: {got['refused']}"
        _compare_borders(place, want.get("borders", []), got["borders"])


def _compare_borders(place: Row, want: list[dict[str, Any]], got: list[dict[str, Any]]) -> None:
    def united(records: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, set[str]]]:
        sets: dict[tuple[str, str], dict[str, set[str]]] = {}
        for record in records:
            kinds = sets.setdefault((record["stream_id"], record["reason"]), defaultdict(set))
            for kind in ("leave", "enter", "cross"):
                kinds[kind] |= set(record.get(kind, ()))
        return {key: {kind: ids for kind, ids in kinds.items() if ids} for key, kinds in sets.items()}

    assert united(got) == united(want), f"borders at {place}: {united(got)} != {united(want)}"

    def order(records: list[dict[str, Any]]) -> dict[str, list[str]]:
        reasons: dict[str, list[str]] = defaultdict(list)
        for record in records:
            if record["reason"] not in reasons[record["stream_id"]]:
                reasons[record["stream_id"]].append(record["reason"])
        return reasons

    assert order(got) == order(want), f"order of causes at {place}"
    for one in want:
        same = [r for r in got if (r["stream_id"], r["reason"]) == (one["stream_id"], one["reason"])]
        if "seq" in one:
            assert one["seq"] in [r["seq"] for r in same], f"seq at {place}: {same}"
        for record in same:
            kind = one.get("origin")
            if kind == "event":
                assert record["ts"] == one["ts"]
                assert {"topic", "partition", "offset", "row"} == record["origin"].keys()
            elif kind == "command":
                assert one["ts"] <= record["ts"] <= one["ts"] + 60_000
                assert {"command"} == record["origin"].keys()


def _compare_answers(case: Case, seen: Seen) -> None:
    wanted = {row["step"]: row for row in case.body["expect"] if "status" in row}
    for number, (status, reason) in sorted(seen.answers.items()):
        want = wanted.get(number)
        if want is None:
            assert status < 300, f"step {number} was answered {status} {reason}"
            continue
        assert status == want["status"], f"step {number} was answered {status} {reason}"
        if "refused" in want:
            assert reason in want["refused"], f"step {number} was refused for {reason}"
    assert wanted.keys() <= seen.answers.keys()
