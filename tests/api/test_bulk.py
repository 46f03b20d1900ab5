from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.api.conftest import ATTRIBUTES, OwnSource
from tests.api.harness import Running, running


def lines(*bodies: object) -> bytes:
    return b"".join(json.dumps(body).encode() + b"\n" for body in bodies)


def test_lines_are_created_replaced_and_left_as_they_are(client: httpx.Client, source: OwnSource) -> None:
    source.register("old", "x > 0")
    source.register("same", "x > 0")
    body = lines(source.body("old", "x > 1"), source.body("same"), source.body("new"))
    summary = client.post("/v1/queries:bulk", content=b"\n" + body.replace(b"\n", b"\r\n") + b"  \n").json()
    assert {name: summary[name] for name in ("received", "created", "replaced", "unchanged", "refused")} == {
        "received": 3,
        "created": 1,
        "replaced": 1,
        "unchanged": 1,
        "refused": 0,
    }
    assert summary["failures"] == []
    new = client.get(f"/v1/queries/{source.id('new')}").json()
    assert summary["active_from"]["command"] == int(new["etag"])


def test_one_refused_line_refuses_all(client: httpx.Client, source: OwnSource) -> None:
    body = lines(source.body("a"), source.body("b", "speed > 1"), source.body("c"), source.body("d", on=[]))
    refused = client.post("/v1/queries:bulk", content=body)
    assert refused.status_code == 422
    problem = refused.json()
    assert (problem["reason"], problem["field"]) == ("unknown_attribute", "where")
    assert [(one["line"], one["id"], one["field"]) for one in problem["failures"]] == [
        (2, source.id("b"), "where"),
        (4, source.id("d"), "on"),
    ]
    assert client.get("/v1/queries", params={"source": source.name}).json()["queries"] == []


def test_each_line_for_itself(client: httpx.Client, source: OwnSource) -> None:
    body = (
        lines(source.body("a"), source.body("b", "speed > 1")) + b"{nonsense\n[]\n" + lines(source.body("c"))
    )
    summary = client.post("/v1/queries:bulk", params={"atomic": "false"}, content=body).json()
    assert (summary["created"], summary["refused"]) == (2, 3)
    assert [(one["line"], one["id"], one["reason"]) for one in summary["failures"]] == [
        (2, source.id("b"), "unknown_attribute"),
        (3, None, "syntax"),
        (4, None, "syntax"),
    ]
    found = client.get("/v1/queries", params={"source": source.name}).json()["queries"]
    assert [one["id"] for one in found] == [source.id("a"), source.id("c")]


def test_a_line_that_is_no_json_refuses_all(client: httpx.Client, source: OwnSource) -> None:
    refused = client.post("/v1/queries:bulk", content=lines(source.body("a")) + b'{"id": "x"')
    assert refused.status_code == 422
    assert [one["line"] for one in refused.json()["failures"]] == [2]
    assert client.get(f"/v1/queries/{source.id('a')}").status_code == 404


def test_every_refused_line_is_told_whatever_is_wrong_with_it(
    client: httpx.Client, source: OwnSource
) -> None:
    body = (
        lines(source.body("a"), source.body("b", "speed > 1"))
        + b"{nonsense\nnull\n"
        + lines(source.body("c", on=[]))
    )
    problem = client.post("/v1/queries:bulk", content=body).json()
    told = [(one["line"], one["reason"]) for one in problem["failures"]]
    assert told == [(2, "unknown_attribute"), (3, "syntax"), (4, "syntax"), (5, "bad_value")]
    assert (problem["received"], problem["refused"]) == (5, 4)
    assert "nonsense" not in problem["failures"][2]["detail"] and "column" in problem["failures"][1]["detail"]
    assert client.get("/v1/queries", params={"source": source.name}).json()["queries"] == []


def test_nothing_is_a_summary_of_nothing(client: httpx.Client) -> None:
    summary = client.post("/v1/queries:bulk", content=b"").json()
    assert (summary["received"], summary["active_from"]) == (0, None)


def test_a_line_is_put_together_wherever_it_was_cut(client: httpx.Client, source: OwnSource) -> None:
    body = lines(*(source.body(f"q{i}", tags={"é": "🚢"}) for i in range(20)))

    def chunks() -> Iterator[bytes]:
        for i in range(0, len(body), 7):
            yield body[i : i + 7]

    assert client.post("/v1/queries:bulk", content=chunks()).json()["created"] == 20


def test_an_id_twice_is_registered_then_replaced(client: httpx.Client, source: OwnSource) -> None:
    summary = client.post(
        "/v1/queries:bulk", content=lines(source.body("a"), source.body("a", "x > 9"))
    ).json()
    assert (summary["created"], summary["replaced"]) == (1, 1)
    assert client.get(f"/v1/queries/{source.id('a')}").json()["canonical"] == "x > 9"


def test_the_limits_of_a_bulk_import_are_settings(tmp_path: Path) -> None:
    with running(tmp_path, max_bulk_bytes=2_000, max_message_bytes=500, max_queries=2) as service:
        service.client.put("/v1/sources/s", json={"attributes": ATTRIBUTES})
        body = lines({"id": "a", "source": "s", "where": "x > 0"})
        too_long = service.client.post("/v1/queries:bulk", content=body * 100)
        assert (too_long.status_code, too_long.json()["reason"]) == (413, "too_large")
        long_line = service.client.post("/v1/queries:bulk", content=body + b" " * 600)
        assert long_line.status_code == 413
        assert "line 2" in long_line.json()["detail"]
        many = lines(*({"id": id, "source": "s", "where": "x > 0"} for id in "abc"))
        refused = service.client.post("/v1/queries:bulk", content=many)
        assert (refused.status_code, refused.json()["reason"]) == (429, "quota")
        assert "max_queries" in refused.json()["detail"]
        assert service.client.get("/v1/queries").json()["queries"] == []


def test_more_lines_than_there_may_be_queries_are_refused_as_a_whole(tmp_path: Path) -> None:
    with running(tmp_path, max_queries=3) as service:
        service.client.put("/v1/sources/s", json={"attributes": ATTRIBUTES})
        body = lines({"id": "a", "source": "s", "where": "x > 0"})
        for atomic in ("true", "false"):
            many = service.client.post(
                "/v1/queries:bulk", params={"atomic": atomic}, content=body + b"1\n" * 100_000
            )
            assert (many.status_code, many.json()["reason"]) == (429, "quota")
            assert "100001 lines" in many.json()["detail"] and "max_queries" in many.json()["detail"]
            assert "failures" not in many.json()
        assert service.client.get("/v1/queries").json()["queries"] == []
        few = service.client.post("/v1/queries:bulk", params={"atomic": "false"}, content=body + b"\n1\n2\n")
        assert (few.json()["created"], few.json()["refused"]) == (1, 2)


def test_a_hundred_thousand_queries_are_one_request(tmp_path: Path) -> None:
    count = 100_000

    def chunks() -> Iterator[bytes]:
        for begin in range(0, count, 1_000):
            yield b"".join(
                b'{"id": "q%d", "source": "s", "where": {"any": [{"x": {"gte": %d, "lt": %d}}]}}\n'
                % (i, i, i + 2)
                for i in range(begin, begin + 1_000)
            )

    with running(tmp_path) as service:
        service.client.put("/v1/sources/s", json={"attributes": ATTRIBUTES})
        answer = service.client.post("/v1/queries:bulk", content=chunks(), timeout=600)
        assert answer.json()["created"] == count
        sent = service.client.post(
            "/v1/events", params={"source": "s", "wait": "true"}, json={"stream_id": "v", "x": 77_777}
        )
        assert sent.json()["outputs"][0]["value"]["queries"] == ["q77776", "q77777"]


def test_of_lines_that_are_refused_the_first_thousand_are_told(
    client: httpx.Client, source: OwnSource
) -> None:
    body = lines(source.body("a")) + b"0\n{}\nnonsense\n" * 500 + lines(source.body("b"))
    each = client.post("/v1/queries:bulk", params={"atomic": "false"}, content=body).json()
    assert (each["received"], each["created"], each["refused"]) == (1_502, 2, 1_500)
    assert [one["line"] for one in each["failures"]] == list(range(2, 1_002))
    together = client.post("/v1/queries:bulk", content=body).json()
    assert (together["received"], together["refused"]) == (1_502, 1_000)
    assert together["failures"] == each["failures"]
    assert "999 more" in together["detail"]


def test_what_is_told_of_refused_lines_is_no_longer_than_an_answer(tmp_path: Path) -> None:
    with running(tmp_path, max_answer_bytes=10_000) as service:
        body = lines(*({"id": "a" * 1_000, "source": "nowhere", "where": "x > 0"} for _ in range(100)))
        for atomic in ("true", "false"):
            told = service.client.post("/v1/queries:bulk", params={"atomic": atomic}, content=body)
            assert told.json()["refused"] == 100
            assert 0 < len(told.json()["failures"]) < 100 and len(told.content) < 15_000


def test_refused_lines_leave_nothing_behind_that_holds_itself(service: Running, source: OwnSource) -> None:
    """It would stay until somebody looks for it, and be much."""
    body = b"0\n{}\nnonsense\n" * 300 + lines(source.body("a", "speed > 1"))
    table = b"id,x.gt\n" + b"a,no number\n" * 300 + b"\n" + b"too,many,cells\n" * 300

    def ask() -> None:
        for atomic in ("true", "false"):
            service.plain.post("/v1/queries:bulk", params={"atomic": atomic}, content=body)
        service.plain.put(
            "/v1/collections/c",
            params={"source": source.name},
            content=table,
            headers={"content-type": "text/csv"},
        )

    ask()
    gc.collect()
    gc.disable()
    try:
        ask()
        assert gc.collect() < 1_000, "a client and a server leave a hundred each time"
    finally:
        gc.enable()
