"""What every driver can do, and the walk over a case that all of them share.

A driver is told one step at a time. ``flush`` makes it process what was sent so far: called after every step
("one"), only where a command needs it ("batch"), or followed by a restart ("restart").
"""

from __future__ import annotations

import json
from typing import Any, Literal, Protocol

from tests.cases.check import Seen, check
from tests.cases.table import Case

Mode = Literal["one", "batch", "restart"]

EVENT_OPS = {"event", "batch", "tombstone"}


class Driver(Protocol):
    """``source`` is always the real name of a source; a message lies at (topic, offset)."""

    def source(self, name: str, body: dict[str, Any]) -> None: ...
    def command(self, op: str, step: dict[str, Any]) -> tuple[int, str | None, int | None]:
        """Status, reason and the offset of the command in the log, if it wrote one."""

    def bulk(self, queries: list[dict[str, Any]]) -> tuple[int, list[int]]: ...
    def raw_query(self, body: bytes) -> tuple[int, str | None, int | None]: ...
    def delete_stream(self, source: str, stream_id: str) -> tuple[int, str | None]: ...
    def send(self, source: str, key: bytes | None, value: bytes | None) -> tuple[str, int]: ...
    def skip_offsets(self, source: str, upto: int) -> None: ...
    def send_aborted(self, source: str, key: bytes | None, value: bytes) -> None: ...
    def flush(self) -> None: ...
    def clock(self, now_ms: int) -> None: ...
    def restart(self) -> None: ...
    def lose_input(self, source: str) -> None: ...
    def rebalance(self) -> None: ...
    def arm_crash(self) -> None:
        """From now on nothing is committed, until ``crash``."""

    def crash(self) -> None: ...
    def records(self) -> list[tuple[str, bytes | None, bytes]]:
        """All committed output records of the case, in order per topic; matches before borders of an event
        need not hold between topics."""


def play(case: Case, driver: Driver, mode: Mode, prefix: str, *, most_restarts: int = 10_000) -> None:
    """Plays a case and checks what came of it. ``most_restarts`` spreads the restarts of a long case."""
    stride = -(-len(case.steps) // most_restarts)
    seen = Seen()
    for name, source in case.sources.items():
        real = f"{prefix}{'.' + name if name else ''}"
        seen.source_names[name] = real
        driver.source(real, {"attributes": source["attributes"], **source["policies"]})
    doomed = {number for step in case.steps if step["op"] == "crash" for number in step["uncommitted"]}
    for number, step in enumerate(case.steps):
        if number in doomed and number - 1 not in doomed:
            driver.flush()
            driver.arm_crash()
        _do(step, number, driver, seen)
        if number in doomed:
            continue
        if mode == "one" or step["op"] not in EVENT_OPS:
            driver.flush()
        if mode == "restart" and number % stride == 0:
            driver.flush()
            driver.restart()
    driver.flush()
    seen.records = driver.records()
    check(case, seen)


def _do(step: dict[str, Any], number: int, driver: Driver, seen: Seen) -> None:
    source = seen.source_names[step.get("source")]
    op = step["op"]
    if op == "event" and step.get("aborted"):
        driver.send_aborted(source, *_message(step["event"]))
    elif op == "event":
        if "offset" in step:
            driver.skip_offsets(source, step["offset"])
        if step["event"].get("ts") is not None and isinstance(step["event"]["ts"], int):
            driver.clock(step["event"]["ts"])
        seen.places[driver.send(source, *_message(step["event"]))] = number
    elif op == "batch":
        value = json.dumps(step["events"], ensure_ascii=False).encode()
        seen.places[driver.send(source, None, value)] = number
    elif op == "tombstone":
        seen.places[driver.send(source, step["stream_id"].encode(), None)] = number
    elif op == "raw" and step.get("to") == "queries":
        driver.flush()
        body = step["text"].replace("@source@", source).encode()
        _answer(number, driver.raw_query(body), seen)
    elif op == "raw":
        value = bytes.fromhex(step["hex"]) if "hex" in step else step["text"].encode()
        seen.places[driver.send(source, b"raw", value)] = number
    elif op in ("register", "put", "patch", "delete"):
        driver.flush()
        if "query" in step:
            step = {**step, "query": {**step["query"], "source": source}}
        _answer(number, driver.command(op, step), seen)
    elif op == "bulk":
        driver.flush()
        status, offsets = driver.bulk([{**query, "source": source} for query in step["queries"]])
        seen.answers[number] = (status, None)
        seen.places.update({("command", offset): number for offset in offsets})
    elif op == "delete_stream":
        driver.flush()
        seen.answers[number] = driver.delete_stream(source, step["stream_id"])
    elif op == "clock":
        driver.flush()
        driver.clock(step["now"])
    elif op == "restart":
        driver.flush()
        if step.get("input_lost"):
            driver.lose_input(source)
        driver.restart()
    elif op == "rebalance":
        driver.flush()
        driver.rebalance()
    elif op == "crash":
        driver.crash()
    else:
        raise AssertionError(f"no driver knows the step {op!r}")


def _answer(number: int, answer: tuple[int, str | None, int | None], seen: Seen) -> None:
    status, reason, offset = answer
    seen.answers[number] = (status, reason)
    if offset is not None:
        seen.places["command", offset] = number


def _message(event: dict[str, Any]) -> tuple[bytes | None, bytes]:
    stream_id = event.get("stream_id")
    key = stream_id.encode() if isinstance(stream_id, str) else None
    return key, json.dumps(event, ensure_ascii=False).encode()
