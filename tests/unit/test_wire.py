"""Records as text: what an unusual event does to them."""

from __future__ import annotations

import base64
import json
from typing import Any

from service.wire import TRUNCATED_BYTES, _original, command_body, command_message
from tests.cases.engine_driver import EngineDriver


def _records(driver: EngineDriver, topic: str) -> list[dict[str, Any]]:
    return [json.loads(value) for name, _, value in driver.records() if name == topic]


def test_the_original_of_a_dead_letter_comes_back() -> None:
    for value in (b"", b"plain", "köln 🚢".encode(), b"\xff\x00", bytes(range(256)), b"\x01" * 1000):
        letter = _original(value, 100_000)
        back = letter["value"].encode() if "value" in letter else base64.b64decode(letter["value_b64"])
        assert back == value
        assert "truncated" not in letter
        assert len(json.dumps(letter, ensure_ascii=False)) < 2 * len(value) + 200


def test_of_an_event_that_is_too_large_the_start_is_kept() -> None:
    letter = _original(b"x" * 200_000, 100_000)
    assert base64.b64decode(letter["value_b64"]) == b"x" * TRUNCATED_BYTES
    assert letter["truncated"] is True


def test_ids_of_any_alphabet_and_selected_attributes() -> None:
    driver = EngineDriver()
    driver.source("s", {"attributes": {"x": "number", "kind": "category", "y": "number"}})
    queries = [
        {"id": "plain", "where": {"any": [{"x": {"gte": 0}}]}},
        {"id": "both", "where": {"any": [{"x": {"gte": 0}}]}, "select": ["kind", "x"]},
        {"id": "one", "where": {"any": [{"x": {"gte": 0}}]}, "select": ["y"]},
        {"id": "same", "where": {"any": [{"x": {"gte": 0}}]}, "select": ["kind", "x"]},
    ]
    for query in queries:
        driver.command("put", {"query": {**query, "source": "s"}})
    stream_id = 'a"b\\c\n🚢'
    event = {"stream_id": stream_id, "ts": 7, "x": 1.5, "kind": 'q"'}
    driver.send("s", stream_id.encode(), json.dumps(event).encode())
    driver.flush()
    matches = _records(driver, "matches")
    assert [(m["queries"], m["attrs"]) for m in matches] == [
        (["plain"], {}),
        (["both", "same"], {"kind": 'q"', "x": 1.5}),
        (["one"], {}),
    ]
    (border,) = _records(driver, "borders")
    assert border["attrs"] == {"kind": 'q"', "x": 1.5}
    assert border["stream_id"] == stream_id
    driver.send("s", stream_id.encode(), None)
    driver.flush()
    removed = _records(driver, "borders")[1]
    assert (removed["reason"], removed["attrs"]) == ("stream_removed", {"kind": 'q"', "x": 1.5})


def test_a_command_keeps_every_digit() -> None:
    from service.engine.commands import Entry

    body = {"v": 1, "where": {"gte": 2**70, "lt": 0.1, "eq": 1e300, "text": "\u2028 köln"}}
    message = command_message(Entry("query:q", body), at_ms=5)
    assert command_body(message.value) == {**body, "at": 5}
    assert command_body(b"\xff") is None
    assert command_body(None) is None
