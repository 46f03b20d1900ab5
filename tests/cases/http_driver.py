"""Cases over the real HTTP API, on a real log: what both logs share.

In "one" delivery an event is a POST that waits for its outputs, and these are compared with what lies in the
topics. Otherwise the worker is held while messages are appended, so that it finds them all in one poll. What
HTTP cannot carry (bytes that are no JSON, tombstones) is appended to the log as a producer would.
"""

from __future__ import annotations

import json
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from service.api.app import create_app
from service.engine.commands import DeleteQuery
from service.engine.engine import Engine
from service.log.port import Commit, Log, Message
from service.metrics import Metrics
from service.runtime import Receipt, Runtime
from service.settings import Settings
from tests.cases.driver import Mode
from tests.runtime.memory_log import Died

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

PATIENCE_S = 60.0


class Mortal:
    """A log whose commits wait when ``armed`` and then die: the process is killed with work uncommitted."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.armed = False
        self.reached = threading.Event()
        self.killed = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def commit(self, commit: Commit) -> None:
        self._live_on()
        self._log.commit(commit)

    def begin_commit(self, commit: Commit) -> Future[None]:
        self._live_on()
        return self._log.begin_commit(commit)

    def _live_on(self) -> None:
        if self.armed:
            self.reached.set()
            self.killed.wait(PATIENCE_S)
            raise Died("killed before the commit")


class Instance:
    """One running service: log, runtime, application, client."""

    def __init__(self, log: Log, settings: Settings, clock: Callable[[], int]) -> None:
        self.log = Mortal(log)
        metrics = Metrics()
        self.runtime = Runtime(self.log, settings, metrics, clock=clock)  # type: ignore[arg-type]
        self.client = TestClient(create_app(self.runtime, settings, metrics), base_url="http://localhost")
        self.runtime.start()

    def wait_ready(self) -> None:
        wait_until(lambda: self.runtime.ready or self.runtime.failure is not None)
        assert self.runtime.ready, self.runtime.failure

    def stop(self) -> None:
        self.runtime.stop(PATIENCE_S)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        pause.wait(0.002)


class HttpDriver:
    """``tests.cases.driver.Driver`` over HTTP. Subclasses say which log, and what only that log can do."""

    def __init__(self, mode: Mode, settings: Settings) -> None:
        self.mode = mode
        self.now = 0
        self._settings = settings
        self._sources: list[str] = []
        self._ids: set[str] = set()
        self._held: threading.Event | None = None
        self._open: list[Future[Receipt]] = []
        self._doomed: list[Future[Receipt]] = []
        self._answered: list[tuple[str, bytes | None, bytes]] = []
        self.instance = self._start()
        self.instance.wait_ready()

    # ---- what a log must add

    def make_log(self) -> Log:
        raise NotImplementedError

    def records(self) -> list[tuple[str, bytes | None, bytes]]:
        raise NotImplementedError

    def lose_input(self, source: str) -> None:
        raise NotImplementedError

    def skip_offsets(self, source: str, upto: int) -> None:
        raise NotImplementedError

    def send_aborted(self, source: str, key: bytes | None, value: bytes) -> None:
        raise NotImplementedError

    def rebalance(self) -> None:
        self.restart()

    # ---- instances

    def _start(self) -> Instance:
        return Instance(self.make_log(), self._settings, lambda: self.now)

    def restart(self) -> None:
        self.instance.stop()
        self.instance = self._start()
        self.instance.wait_ready()

    def close(self) -> None:
        self.instance.stop()

    def arm_crash(self) -> None:
        self.instance.log.armed = True

    def crash(self) -> None:
        """Kills the worker between processing and commit of what was sent since ``arm_crash``."""
        self._release()
        mortal = self.instance.log
        assert mortal.reached.wait(PATIENCE_S), "nothing was about to be committed"
        mortal.killed.set()
        wait_until(lambda: self.instance.runtime.failure is not None)
        assert isinstance(self.instance.runtime.failure, Died)
        self._open.clear()
        self.instance = self._start()
        self.instance.wait_ready()
        self._caught_up()

    def _caught_up(self) -> None:
        """Waits until everything in the event topics has been processed."""
        worker = self.instance.runtime._worker

        def done() -> bool:
            asked = self.instance.runtime.ask(lambda engine: (dict(worker.positions), worker.uncommitted))
            positions, uncommitted = asked.result(PATIENCE_S)
            if {f"events.{name}" for name in self._sources} - {task.topic for task in positions}:
                return False
            ends = self.instance.log.end_offsets(list(positions))
            return not uncommitted and all(positions[task] >= end for task, end in ends.items())

        wait_until(done)

    # ---- commands

    def source(self, name: str, body: dict[str, Any]) -> None:
        answer = self.instance.client.put(f"/v1/sources/{name}", json=body)
        assert answer.status_code == 201, answer.text
        self._sources.append(name)

    def command(self, op: str, step: dict[str, Any]) -> tuple[int, str | None, int | None]:
        client = self.instance.client
        match op:
            case "register":
                answer = client.post("/v1/queries", content=json.dumps(step["query"]))
            case "put":
                query = step["query"]
                answer = client.put(f"/v1/queries/{query['id']}", content=json.dumps(query))
            case "patch":
                answer = client.patch(f"/v1/queries/{step['id']}", content=json.dumps(step["set"]))
            case _:
                answer = client.delete(f"/v1/queries/{step['id']}")
        if op in ("register", "put") and answer.status_code < 300:
            self._ids.add(step["query"]["id"])
        if answer.status_code == 204:
            return 204, None, json.loads(answer.headers["active-from"])["command"]
        return self._answer(answer)

    def raw_query(self, body: bytes) -> tuple[int, str | None, int | None]:
        answer = self.instance.client.post("/v1/queries", content=body)
        if answer.status_code < 300:
            self._ids.add(answer.json()["id"])
        return self._answer(answer)

    @staticmethod
    def _answer(answer: Any) -> tuple[int, str | None, int | None]:
        body = answer.json()
        if answer.status_code >= 300:
            assert answer.headers["content-type"] == "application/problem+json"
            assert body["detail"]
            return answer.status_code, body["reason"], None
        return answer.status_code, None, body["active_from"]["command"]

    def bulk(self, queries: list[dict[str, Any]]) -> tuple[int, list[int]]:
        lines = "\n".join(json.dumps(query) for query in queries)
        answer = self.instance.client.post("/v1/queries:bulk", content=lines)
        self._ids.update(query["id"] for query in queries)
        source = {"source": queries[0]["source"], "limit": 10_000}
        views = self.instance.client.get("/v1/queries", params=source).json()["queries"]
        return answer.status_code, [view["active_from"]["command"] for view in views]

    def delete_stream(self, source: str, stream_id: str) -> tuple[int, str | None]:
        answer = self.instance.client.delete(f"/v1/streams/{stream_id}", params={"source": source})
        return answer.status_code, answer.json()["reason"] if answer.status_code >= 300 else None

    # ---- events

    def send(self, source: str, key: bytes | None, value: bytes | None) -> tuple[str, int]:
        runtime, topic = self.instance.runtime, f"events.{source}"
        if self.instance.log.armed:
            places = self.instance.log.append_events(topic, [Message(key, value)])
            return topic, places[0][1]
        if self.mode == "one" and value is not None and _is_json(value):
            answer = self.instance.client.post(
                "/v1/events", params={"source": source, "wait": True}, content=value
            )
            assert answer.status_code == 200, answer.text
            body = answer.json()
            for output in body["outputs"]:
                key_text = output["key"]
                self._answered.append(
                    (output["topic"], key_text and key_text.encode(), json.dumps(output["value"]).encode())
                )
            return topic, body["positions"][0]["offset"]
        self._hold()
        places = self.instance.log.append_events(topic, [Message(key, value)])
        assert runtime.failure is None
        return topic, places[0][1]

    def _hold(self) -> None:
        """Keeps the worker from polling until ``flush``, so that it finds all that is sent at once."""
        if self._held is None:
            held = self._held = threading.Event()
            holding = threading.Event()

            def wait(_: Any) -> None:
                holding.set()
                held.wait(PATIENCE_S)

            self.instance.runtime.ask(wait)
            assert holding.wait(PATIENCE_S)

    def _release(self) -> None:
        if self._held is not None:
            self._held.set()
            self._held = None

    def flush(self) -> None:
        if self._held is not None:
            self._release()
            self._caught_up()
        self._nothing_due()

    def clock(self, now_ms: int) -> None:
        self.now = max(self.now, now_ms)

    def _nothing_due(self) -> None:
        """Waits until all that is due by now has been done."""
        worker, now = self.instance.runtime._worker, self.now
        if self.instance.log.armed:
            return

        def due(engine: Engine) -> bool:
            timers = any(engine.due(task, now) for task in engine.tables)
            return timers or bool(engine.catalog.expired(now)) or worker.uncommitted

        wait_until(lambda: not self.instance.runtime.ask(due).result(PATIENCE_S))

    # ---- the end of a case

    def check_answers(self, records: list[tuple[str, bytes | None, bytes]]) -> None:
        """What POST answered is what lies in the topics, nothing else."""
        written = {(topic, key, json.dumps(json.loads(value))) for topic, key, value in records}
        for topic, key, value in self._answered:
            assert (topic, key, value.decode()) in written, f"answered but not written: {value!r}"

    def clear(self) -> None:
        """Deletes the queries of a case, so that the next may use their ids."""
        deletions = [DeleteQuery(id) for id in sorted(self._ids)]
        self.instance.runtime.command(deletions, atomic=False).result(PATIENCE_S)
        self.now = 0
        self._ids.clear()
        self._answered.clear()
        self._sources.clear()

    def mine(self, records: list[tuple[str, bytes | None, bytes]]) -> list[tuple[str, bytes | None, bytes]]:
        """The records of the sources of the case at hand."""
        return [record for record in records if json.loads(record[2])["source"] in self._sources]


def _is_json(value: bytes) -> bool:
    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        json.loads(value, parse_constant=refuse)
    except ValueError:
        return False
    return True
