"""POST /v1/explain over HTTP: what it takes, what it refuses, and that its answer is that of matching."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest

from tests.api.conftest import ATTRIBUTES, OwnSource


def explain(client: httpx.Client, **body: Any) -> dict[str, Any]:
    response = client.post("/v1/explain", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_every_disjunct_says_what_fails_and_by_how_much(client: httpx.Client, source: OwnSource) -> None:
    query = source.register("q", "x > 5 and kind in ('tug', 'yacht') or 0 <= x < 1 and y <= 3")
    event = {"stream_id": "v", "x": 5, "kind": "cargo"}
    answer = explain(client, query=query["id"], event=event)
    assert [part["of_query"] for part in answer.pop("index")] == [3]
    assert answer == {
        "query": query["id"],
        "source": source.name,
        "canonical": query["canonical"],
        "enabled": True,
        "values": {"x": 5.0, "kind": "cargo"},
        "holds": False,
        "margin": None,
        "disjuncts": [
            {
                "where": "kind in ('tug', 'yacht') and x > 5",
                "holds": False,
                "fails": [
                    {
                        "attribute": "kind",
                        "predicate": "kind in ('tug', 'yacht')",
                        "bound": {"in": ["tug", "yacht"]},
                        "value": "cargo",
                        "missing": False,
                        "margin": None,
                    },
                    {
                        "attribute": "x",
                        "predicate": "x > 5",
                        "bound": {"gt": 5},
                        "value": 5.0,
                        "missing": False,
                        "margin": {"attribute": "x", "border": 5.0, "distance": 0.0, "open": True},
                    },
                ],
                "margin": None,
            },
            {
                "where": "0 <= x < 1 and y <= 3",
                "holds": False,
                "fails": [
                    {
                        "attribute": "x",
                        "predicate": "0 <= x < 1",
                        "bound": {"gte": 0, "lt": 1},
                        "value": 5.0,
                        "missing": False,
                        "margin": {"attribute": "x", "border": 1.0, "distance": 4.0, "open": True},
                    },
                    {
                        "attribute": "y",
                        "predicate": "y <= 3",
                        "bound": {"lte": 3},
                        "value": None,
                        "missing": True,
                        "margin": None,
                    },
                ],
                "margin": None,
            },
        ],
        "keep": None,
        "stream": None,
    }


def test_the_structure_that_the_query_lies_in_is_that_of_its_source(
    client: httpx.Client, source: OwnSource
) -> None:
    source.register("loud", "0 <= x < 10 or kind == 'tug'")
    source.register("quiet", "0 <= x < 10", on=["enter"])
    source.register("off", "0 <= x < 10", enabled=False)
    parts = client.get(f"/v1/sources/{source.name}/index").json()
    for name, index, boxes in (("loud", "matching", 2), ("quiet", "quiet", 1)):
        (found,) = explain(client, query=source.id(name), event={"stream_id": "v"})["index"]
        assert found.pop("of_query") == boxes
        assert found in parts[index]
        assert found["structure"] and found["reason"]
    assert explain(client, query=source.id("off"), event={"stream_id": "v"})["index"] == []
    whole = {"where": "x > 1", "source": source.name}
    assert explain(client, query=whole, event={"stream_id": "v"})["index"] == []


def test_what_holds_has_its_nearest_border(client: httpx.Client, source: OwnSource) -> None:
    query = source.register("q", "0 <= x < 10 and y > 2")
    answer = explain(client, query=query["id"], event={"stream_id": "v", "x": 9.5, "y": 7})
    assert answer["holds"] is True
    border = {"attribute": "x", "border": 10.0, "distance": 0.5, "open": True}
    assert answer["margin"] == answer["disjuncts"][0]["margin"] == border
    assert answer["disjuncts"][0]["fails"] == []


def test_the_answer_is_that_of_match(client: httpx.Client, source: OwnSource) -> None:
    ids = [source.register(f"q{x}", f"x >= {x} and kind != 'tug'")["id"] for x in range(4)]
    for kind in ("tug", "yacht", "heard for the first time"):
        event = {"stream_id": "v", "x": 2, "kind": kind}
        matched = client.post("/v1/match", params={"source": source.name}, json=event).json()["matches"][0]
        assert [id for id in ids if explain(client, query=id, event=event)["holds"]] == matched


def test_a_query_may_be_given_whole(client: httpx.Client, source: OwnSource) -> None:
    event = {"stream_id": "v", "x": 2}
    for query, more in (
        ({"where": "x > 1"}, {"source": source.name}),
        ({"where": "x > 1", "source": source.name, "enabled": False}, {}),
        ({"id": "named", "where": {"any": [{"x": {"gt": 1}}]}}, {"source": source.name}),
    ):
        answer = explain(client, query=query, event=event, **more)
        assert (answer["query"], answer["canonical"], answer["holds"]) == (None, "x > 1", True)
        assert answer["enabled"] is query.get("enabled", True)
    assert client.get("/v1/queries/named").status_code == 404


def test_a_disabled_query_is_explained_and_said_to_be_disabled(
    client: httpx.Client, source: OwnSource
) -> None:
    query = source.register("q", "x > 1", enabled=False)
    answer = explain(client, query=query["id"], event={"stream_id": "v", "x": 2})
    assert (answer["enabled"], answer["holds"]) == (False, True)


def test_of_a_stream_its_last_values_and_how_it_stands(client: httpx.Client, source: OwnSource) -> None:
    source.send({"stream_id": "v", "ts": 10, "x": 7})
    shy = source.register("shy", "x > 1", initial="ignore")["id"]
    bold = source.register("bold", "x > 1")["id"]
    source.send({"stream_id": "v", "ts": 5, "x": -3})

    answer = explain(client, query=shy, stream_id="v")
    assert (answer["holds"], answer["values"]) == (True, {"x": 7.0})
    stream = answer["stream"]
    assert (stream["member"], stream["ignored"]) == (False, True)
    assert (stream["late"], stream["missing"], stream["ts"]) == ("no_border", "absent", 10)
    assert stream["newest"] == {"offset": 1, "row": 0, "ts": 5, "verdict": "late", "carried": []}
    assert stream["moved_by"] == {"offset": 0, "row": 0, "ts": 10, "verdict": "moved", "carried": []}
    assert (stream["topic"], stream["partition"]) == (f"events.{source.name}", 0)

    stream = explain(client, query=bold, stream_id="v", source=source.name)["stream"]
    assert (stream["member"], stream["ignored"]) == (True, False)
    stream = explain(client, query={"where": "x > 1"}, source=source.name, stream_id="v")["stream"]
    assert (stream["member"], stream["ignored"]) == (None, None)


def test_what_is_carried_is_said_to_be(client: httpx.Client, source: OwnSource) -> None:
    body = {"attributes": {"x": "number", "y": "number", "kind": "category"}, "missing": "carry"}
    client.put(f"/v1/sources/{source.name}", json=body).raise_for_status()
    query = source.register("q", "x > 1 and y > 1")["id"]
    source.send({"stream_id": "v", "x": 7, "kind": "tug"}, {"stream_id": "v", "y": 7})
    answer = explain(client, query=query, stream_id="v")
    assert (answer["holds"], answer["values"]) == (True, {"x": 7.0, "y": 7.0, "kind": "tug"})
    assert answer["stream"]["missing"] == "carry"
    assert answer["stream"]["moved_by"]["carried"] == ["x", "kind"]
    answer = explain(client, query=query, event={"stream_id": "v", "y": 7})
    assert (answer["holds"], answer["values"]) == (False, {"y": 7.0})


def test_a_key_twice_in_an_event_is_the_last_and_elsewhere_a_mistake(
    client: httpx.Client, source: OwnSource
) -> None:
    id = json.dumps(source.register("q", "x > 1")["id"])
    event = '{"stream_id": "v", "x": 0, "x": 5}'
    response = client.post("/v1/explain", content=f'{{"query": {id}, "event": {event}}}')
    assert response.json()["values"] == {"x": 5.0}
    for body, field in (
        (f'{{"query": {id}, "query": {id}, "event": {event}}}', "query"),
        (f'{{"query": {{"where": "x > 1", "where": "x > 2"}}, "event": {event}}}', "query.where"),
    ):
        problem = client.post("/v1/explain", content=body)
        assert problem.status_code == 422
        assert (problem.json()["reason"], problem.json()["field"]) == ("syntax", field)


EVENT = {"stream_id": "v", "x": 1}
WHOLE = {"where": "x > 1"}
OF_Z = {"where": "z > 1", "source": "S"}


@pytest.mark.parametrize(
    ("body", "status", "reason", "field"),
    [
        (b"", 422, "syntax", ""),
        (b"[]", 422, "syntax", ""),
        (b"{", 422, "syntax", ""),
        (b'"\xff"', 422, "syntax", ""),
        (b"[" * 100_000, 422, "syntax", ""),
        ({"event": EVENT}, 422, "missing_field", "query"),
        ({"query": "Q"}, 422, "missing_field", "event"),
        ({"query": "Q", "event": EVENT, "stream_id": "v"}, 422, "missing_field", "event"),
        ({"query": "Q", "event": EVENT, "events": []}, 422, "unknown_field", "events"),
        ({"query": "nobody", "event": EVENT}, 404, "unknown_id", "query"),
        ({"query": "Q", "stream_id": "nobody"}, 404, "unknown_id", "stream_id"),
        ({"query": "Q", "stream_id": 7}, 422, "bad_value", "stream_id"),
        ({"query": 7, "event": EVENT}, 422, "bad_value", "query"),
        ({"query": None, "event": EVENT}, 422, "bad_value", "query"),
        ({"query": "Q", "source": "other", "event": EVENT}, 422, "bad_value", "source"),
        ({"query": WHOLE, "event": EVENT}, 422, "missing_field", "query.source"),
        ({"query": {**WHOLE, "source": "S"}, "source": "t", "event": EVENT}, 422, "bad_value", "source"),
        ({"query": WHOLE, "source": "nobody", "event": EVENT}, 422, "unknown_source", "query.source"),
        ({"query": OF_Z, "event": EVENT}, 422, "unknown_attribute", "query.where"),
        ({"query": "Q", "event": [EVENT]}, 200, "", ""),
        ({"query": "Q", "event": [EVENT, EVENT]}, 422, "malformed", "event"),
        ({"query": "Q", "event": {"x": 1}}, 422, "no_stream_id", "event"),
        ({"query": "Q", "event": {"stream_id": "v", "x": None}}, 422, "not_a_number", "event"),
        (b'{"query": "Q", "event": {"stream_id": "v", "x": NaN}}', 422, "not_finite", "event.x"),
        (b'{"query": "Q", "event": {"stream_id": "v", "x": 1e999}}', 422, "not_finite", "event"),
        (b'{"query": "Q", "event": {"stream_id": "v", "x": 9007199254740993}}', 422, "inexact", "event"),
    ],
)  # fmt: skip
def test_what_it_takes(
    client: httpx.Client, source: OwnSource, body: Any, status: int, reason: str, field: str
) -> None:
    id = source.register("q", "x > 1")["id"]
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    raw = raw.replace(b'"Q"', json.dumps(id).encode()).replace(b'"S"', json.dumps(source.name).encode())
    response = client.post("/v1/explain", content=raw)
    assert response.status_code == status, response.text
    if status != 200:
        assert (response.json()["reason"], response.json()["field"]) == (reason, field)


def test_a_question_that_is_too_long_is_refused(client: httpx.Client, source: OwnSource) -> None:
    id = source.register("q", "x > 1")["id"]
    body = {"query": id, "event": {"stream_id": "v", "note": "x" * 2_000_000}}
    assert client.post("/v1/explain", json=body).status_code == 413


def test_a_stream_that_waits_or_is_barred_is_told_until_when(client: httpx.Client, source: OwnSource) -> None:
    source.register("dwell", "x > 0", **{"for": "1h"})
    source.register("cool", "x > 0", cooldown="1h")
    source.register("once", "x > 0", once=True)
    source.send({"stream_id": "v", "ts": 1_000, "x": 1}, {"stream_id": "v", "ts": 2_000, "x": -1})
    source.send({"stream_id": "v", "ts": 3_000, "x": 1})

    def stand(name: str) -> tuple[Any, ...]:
        asked = {"query": source.id(name), "stream_id": "v"}
        stream = client.post("/v1/explain", json=asked).raise_for_status().json()["stream"]
        return stream["member"], stream["waits_until"], stream["barred_until"], stream["spent"]

    hour = 3_600_000
    assert stand("dwell") == (False, 3_000 + hour, None, False)
    assert stand("cool") == (False, 2_000 + hour, 2_000 + hour, False)
    assert stand("once") == (False, None, None, True)
    source.send({"stream_id": "v", "ts": 4_000, "x": -1})
    assert stand("dwell") == (False, None, None, False)
    assert stand("cool") == (False, None, 2_000 + hour, False)  # outside it waits for nothing


def test_of_a_silent_stream_no_wait_is_promised_an_end(client: httpx.Client, source: OwnSource) -> None:
    source.register("dwell", "x > 0", **{"for": "1h"})
    source.send({"stream_id": "v", "ts": 1_000, "x": 1})
    hour, whole = 3_600_000, {"where": "x > 9", "source": source.name}

    def stand(query: Any) -> tuple[Any, ...]:
        stream = explain(client, query=query, stream_id="v")["stream"]
        return stream["member"], stream["waits_until"], stream["silent_since"]

    for policy, silent_since in (({}, None), ({"stale_after": 1}, 1_000), ({"stale_after": "1h"}, None)):
        body = {"attributes": ATTRIBUTES, **policy}
        client.put(f"/v1/sources/{source.name}", json=body).raise_for_status()
        time.sleep(0.005)
        until = 1_000 + hour if silent_since is None else None
        assert stand(source.id("dwell")) == (False, until, silent_since)
        assert stand(whole) == (None, None, silent_since)


def test_of_a_member_outside_where_it_tells_how_far_it_is_to_the_end_of_keep(
    client: httpx.Client, source: OwnSource
) -> None:
    source.register("q", "x > 5", keep="x > 4 or y > 7")
    source.register("plain", "x > 5")
    source.send({"stream_id": "v", "x": 6}, {"stream_id": "v", "x": 4.5, "y": 6})
    told = explain(client, query=source.id("q"), stream_id="v")
    assert (told["holds"], told["stream"]["member"]) == (False, True)
    keep = told["keep"]
    assert (keep["canonical"], keep["holds"]) == ("x > 4 or y > 7", True)
    assert (keep["margin"]["attribute"], keep["margin"]["distance"]) == ("x", 0.5)
    assert [disjunct["holds"] for disjunct in keep["disjuncts"]] == [True, False]
    event = explain(client, query=source.id("q"), event={"stream_id": "w", "x": 3, "y": 1})
    assert (event["holds"], event["keep"]["holds"], event["keep"]["margin"]["distance"]) == (False, False, 1)
    assert explain(client, query=source.id("plain"), stream_id="v")["keep"] is None
