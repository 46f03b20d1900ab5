"""One worker in this process, on either log; the test moves its clock, and the log loses what it is told."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from importlib.resources import files
from typing import Any, Protocol

from jsonschema import Draft202012Validator
from kafka.admin import ConfigResource, ConfigResourceType

from service import wire
from service.engine.commands import Command, PutQuery, PutSource
from service.engine.engine import Engine, EngineLimits
from service.engine.state import StateLog
from service.log.clock import now_ms
from service.log.port import Log, Message, Record, TopicPartition
from service.metrics import Metrics
from service.model import Refusal
from service.worker import CommandRequest, Worker
from tests.faults.oracle import by_stream, check_balance
from tests.log.sites import KafkaSite, SqliteSite, eventually

TOPIC = "events.s"
ZERO = TopicPartition(TOPIC, 0)
#: Few streams a page and few deltas: pages are written often.
BLOCK, RING = 4, 8
_schema = Draft202012Validator(json.loads((files("service.schemas") / "borders.json").read_text()))
SOURCE = PutSource("s", {"attributes": {"x": "number"}})


class Losing(Protocol):
    """A log that loses what a test wants it to lose, while nobody has it open."""

    partitions: int

    def log(self, worker: str = "worker", *, clock_ms: Callable[[], int] = now_ms) -> Log: ...

    def trim(self, log: Log, partition: TopicPartition, before: int) -> None: ...

    def outputs(self, topic: str) -> list[tuple[bytes | None, bytes | None]]: ...

    def lose_command(self, offset: int) -> None:
        """Compacts the command log: of the key of this command only the newest stays."""

    def lose_state(self) -> None: ...


class LosingFile(SqliteSite):
    def lose_command(self, offset: int) -> None:
        self._do("DELETE FROM records WHERE offset = ? AND topic = (SELECT id FROM topics WHERE name = ?)",
                 offset, "queries")  # fmt: skip

    def lose_state(self) -> None:
        self._do("DELETE FROM state")

    def _do(self, statement: str, *values: object) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            assert connection.execute(statement, values).rowcount > 0


class LosingTopics(KafkaSite):
    partitions = 1

    def lose_command(self, offset: int) -> None:
        """Waits for the broker to do it, which looks at what lies before the newest record only."""
        self.compact_at_once("queries")
        with closing(self.log("elsewhere")) as log:
            log.open()

            def compacted() -> bool:
                log.append_commands([Message(b"nothing", b"null")], after=log.end_of_commands())
                return all(record.offset != offset for record in log.commands(0, log.end_of_commands()))

            eventually(compacted, "the command log is compacted")

    def compact_at_once(self, topic: str) -> None:
        at_once = {"min.compaction.lag.ms": "0", "min.cleanable.dirty.ratio": "0.0001", "segment.ms": "1"}
        resource = ConfigResource(ConfigResourceType.TOPIC, self.prefix + topic, configs=at_once)
        with closing(self.admin()) as admin:
            admin.alter_configs([resource])

    def lose_state(self) -> None:
        with closing(self.admin()) as admin:
            admin.delete_topics([self.prefix + "state"])


class Alone:
    """A site and the worker that is on it. ``now`` is the time of both, ms since 1970."""

    def __init__(self, site: Losing) -> None:
        self.site = site
        self.now = now_ms()
        self.log: Log = site.log()
        self.worker: Worker

    def begin(self, **options: Any) -> None:
        """A worker begins, after the one before has ended, and does what there is to do."""
        self.close()
        self.log = self.site.log(clock_ms=lambda: self.now)
        self.worker = Worker(
            self.log,
            lambda: Engine(
                engine_limits=EngineLimits(ids=2), make_state_log=lambda: StateLog(block=BLOCK, ring=RING)
            ),
            Metrics(),
            clock=lambda: self.now,
            max_message_bytes=1 << 16,
            max_batch_events=100,
            **options,
        )
        self.worker.open()
        self.settle()

    def close(self) -> None:
        self.log.close()

    def settle(self) -> None:
        """Until nothing is left to do."""

        def idle() -> bool:
            self.worker.step([], timeout_s=0.05)
            at = {TopicPartition(*task): event for task, event in self.worker.positions.items()}
            return self.worker.ready and not self.worker.uncommitted and self.log.end_offsets(at) == at

        eventually(idle, "the worker has caught up")

    def ask(self, *commands: Command) -> None:
        for command in commands:
            heard: list[CommandRequest] = []
            failed: list[BaseException] = []
            self.worker.step([CommandRequest([command], True, heard.append, failed.append)], timeout_s=0)
            self.settle()
            assert not failed
            assert not isinstance(heard[0].results[0], Refusal), heard[0].results

    def send(self, *events: dict[str, Any]) -> None:
        """To the topic; the worker does not look there before the next step."""
        self.log.append_events(
            TOPIC, [Message(one["stream_id"].encode(), json.dumps(one).encode(), 0) for one in events]
        )

    def process(self, *events: dict[str, Any]) -> None:
        self.send(*events)
        self.settle()

    def elsewhere(self, *commands: Command) -> None:
        """Commands that another worker writes, while this one is not there."""
        self.close()
        with closing(self.site.log("elsewhere")) as log:
            log.open()
            engine = Engine()
            end = log.end_of_commands()
            engine.command(
                [(one.offset, wire.command_body(one.value)) for one in log.commands(0, end)], self.now
            )
            draft = engine.draft(self.now)
            entries = [draft.prepare(command).entry for command in commands]
            log.append_commands(
                [wire.command_message(one, at_ms=self.now) for one in entries if one],
                after=log.end_of_commands(),
            )

    def commands(self) -> list[Record]:
        self.close()
        with closing(self.site.log("elsewhere")) as log:
            log.open()
            return list(log.commands(0, log.end_of_commands()))

    def borders(self) -> list[dict[str, Any]]:
        """The border records, as their schema has them."""
        records = [json.loads(value or b"") for _, value in self.site.outputs("borders")]
        for record in records:
            _schema.validate(record)
        return records

    def told(self) -> list[tuple[str, int, str, list[str], list[str]]]:
        return [(r["stream_id"], r["seq"], r["reason"], r["leave"], r["enter"]) for r in self.borders()]

    def folded(self) -> dict[str, set[str]]:
        return check_balance(
            by_stream(("borders", key, value) for key, value in self.site.outputs("borders"))
        )


def query(id: str, where: str, **more: Any) -> PutQuery:
    return PutQuery(id, {"id": id, "source": "s", "where": where, **more})


def furnish(alone: Alone) -> None:
    """Three streams, and queries of every kind."""
    alone.begin()
    alone.ask(SOURCE, query("a", "x > 0"), query("b", "x > 5"), query("c", "x < 100"), query("d", "x > 7"))
    alone.ask(query("shy", "x > 0", initial="ignore"), query("kept", "x > 9", keep="x > 5"))
    alone.ask(query("counted", "x > 0", aggregates={"every": 10, "of": ["x"]}))
    alone.process({"stream_id": "s1", "x": 10}, {"stream_id": "s2", "x": -5}, {"stream_id": "s3", "x": 6})
