"""The engine without runtime, log or HTTP: the smallest host that commits and restarts.

The host keeps what a log would keep: messages, command entries, state records, outputs and one position; what
was not committed is forgotten by ``crash``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from service import wire
from service.decode import Decoder
from service.engine.commands import Command, DeleteQuery, PatchQuery, PutQuery, PutSource
from service.engine.effects import CommandEffects, EventEffects, Paid, Task, with_refused
from service.engine.engine import Engine, EngineLimits
from service.engine.state import StateLog
from service.index.default.mixed import DefaultIndex
from service.language import load_json
from service.log.port import Output, Record
from service.model import Reason, Refusal
from service.wire import Encoder

STATUS = {
    Reason.EXISTS: 409,
    Reason.QUARANTINED: 409,
    Reason.UNKNOWN_ID: 404,
    Reason.CHANGED: 412,
    Reason.IN_USE: 409,
}

Answer = tuple[int, str | None, int | None]
"""Status, reason and the offset of the command in the log, if it wrote one."""


class EngineDriver:
    def __init__(
        self, limits: EngineLimits | None = None, make_state_log: Callable[[], StateLog] = StateLog
    ) -> None:
        self._limits = limits
        self._make_state_log = make_state_log
        self._messages: dict[Task, list[Record]] = {}
        self._next_offset: dict[Task, int] = {}
        self._entries: list[Any] = []
        self._state: dict[Task, dict[bytes, bytes]] = {}
        self._done: dict[Task, int] = {}
        self._outputs: list[tuple[str, bytes | None, bytes]] = []
        self._now = 0
        self._armed = False
        self.engine = self._begin()

    # ---- what a case does

    def source(self, name: str, body: dict[str, Any]) -> None:
        known = name in self.engine.catalog.sources
        assert self._run(PutSource(name, body))[0] == 200
        if known:
            return
        task = self._task(name)
        self._messages[task] = []
        self._next_offset[task] = self._done[task] = 0
        self._state[task] = {}
        self.engine.assign(task, ())

    def command(self, op: str, step: dict[str, Any]) -> Answer:
        match op:
            case "register":
                return self._run(PutQuery(None, step["query"], create_only=True))
            case "put":
                return self._run(PutQuery(step["query"]["id"], step["query"]))
            case "patch":
                return self._run(PatchQuery(step["id"], step["set"]))
            case _:
                return self._run(DeleteQuery(step["id"]))

    def raw_query(self, body: bytes) -> Answer:
        try:
            parsed = load_json(body)
        except Refusal as refusal:
            return 422, refusal.reason, None
        return self._run(PutQuery(None, parsed, create_only=True))

    def bulk(self, queries: list[dict[str, Any]]) -> tuple[int, list[int]]:
        answers = self.commands([PutQuery(None, query) for query in queries])
        assert all(status == 200 for status, _, _ in answers), answers
        return 200, [offset for _, _, offset in answers if offset is not None]

    def commands(self, commands: Sequence[Command]) -> list[Answer]:
        """Requests that are judged and applied together."""
        draft = self.engine.draft(1_700_000_000_000)
        answers: list[Answer] = []
        first = len(self._entries)
        for command in commands:
            try:
                entry = draft.prepare(command).entry
            except Refusal as refusal:
                answers.append((STATUS.get(refusal.reason, 422), refusal.reason, None))
                continue
            answers.append((200, None, None if entry is None else len(self._entries)))
            if entry is not None:
                body = wire.command_body(wire.command_message(entry, at_ms=self._now).value)
                self._entries.append(body)
        self._apply(list(enumerate(self._entries))[first:])
        return answers

    def entry(self, body: dict[str, Any]) -> int:
        """Puts on the command log what no draft has judged."""
        self._entries.append(body)
        offset = len(self._entries) - 1
        self._apply([(offset, body)])
        return offset

    def reassign(self, *, resumed: bool) -> None:
        """Lets every partition go and takes it on again: as it was, or from its state records."""
        for task in list(self.engine.tables):
            held = self.engine.release(task)
            assert held is not None
            if resumed:
                self.engine.resume(task, held)
            else:
                self.engine.assign(task, self._state[task].items())

    def delete_stream(self, source: str, stream_id: str) -> tuple[int, str | None]:
        known = self.engine.stream(source, stream_id) is not None
        self._append(self._task(source), stream_id.encode(), None)
        self.flush()
        return (204, None) if known else (404, Reason.UNKNOWN_ID)

    def send(self, source: str, key: bytes | None, value: bytes | None) -> tuple[str, int]:
        task = self._task(source)
        return task.topic, self._append(task, key, value)

    def skip_offsets(self, source: str, upto: int) -> None:
        self._next_offset[self._task(source)] = upto

    def send_aborted(self, source: str, key: bytes | None, value: bytes) -> None:
        self._next_offset[self._task(source)] += 2  # the record and the abort marker

    def flush(self) -> None:
        """Processes and commits what was sent and not yet processed, then what is due by now."""
        for task, messages in self._messages.items():
            fresh = [record for record in messages if record.offset >= self._done[task]]
            if not fresh:
                continue
            queries = self.engine.queries_of(task)
            decoded = Decoder(
                queries.source, queries.dictionaries, max_bytes=1 << 20, max_events=1_000_000
            ).decode(fresh)
            caused = self.engine.apply(task, decoded.batch)
            encoder = Encoder(queries, max_ids=self.engine.limits.ids, max_bytes=1 << 20)
            outputs: list[Output] = []
            for effects in with_refused(caused, decoded.refused):
                if isinstance(effects, EventEffects):
                    outputs += encoder.events(effects, decoded.originals).outputs
                else:
                    outputs += encoder.commands(effects, self.engine.tables[task])
            if not self._armed:
                self._outputs += [tuple(output) for output in outputs]
                self._save(task)
                self._done[task] = fresh[-1].offset + 1
        if not self._armed:
            self._let_pass()

    def tell(self) -> None:
        """Commits one portion of what is owed, on its own."""
        self._write(self.engine.pay())

    def clock(self, now_ms: int) -> None:
        self._now = max(self._now, now_ms)

    def _let_pass(self) -> None:
        for task in self.engine.tables:
            self._write(self.engine.tick(task, self._now))
        for expired in self.engine.catalog.expired(self._now):
            assert self._run(expired)[0] == 200

    def restart(self, *, compacted: bool = False) -> None:
        """Begins anew from what was committed. ``compacted``: of each query the command log has only the
        newest version any more."""
        entries = list(enumerate(self._entries))
        if compacted:
            newest = {body.get("id", offset): offset for offset, body in entries}
            entries = [(offset, body) for offset, body in entries if newest[body.get("id", offset)] == offset]
        self.engine = self._begin()
        self.engine.replay(entries)
        for task, records in self._state.items():
            self.engine.assign(task, records.items())

    def lose_input(self, source: str) -> None:
        self._messages[self._task(source)].clear()

    def rebalance(self) -> None:
        self.restart()

    def arm_crash(self) -> None:
        self._armed = True

    def crash(self) -> None:
        self.flush()
        self._armed = False
        self.restart()

    def records(self) -> list[tuple[str, bytes | None, bytes]]:
        return self._outputs

    # ---- the host

    def _begin(self) -> Engine:
        # So few boxes wait that most are filed: the levels of the index are tested too.
        return Engine(
            engine_limits=self._limits,
            make_state_log=self._make_state_log,
            make_index=lambda source: DefaultIndex(len(source.attributes), delta=2),
        )

    def _task(self, source: str) -> Task:
        return Task(self.engine.catalog.sources[source].topic, 0)

    def _append(self, task: Task, key: bytes | None, value: bytes | None) -> int:
        offset = self._next_offset[task]
        self._messages[task].append(Record(offset, self._now, key, value))
        self._next_offset[task] = offset + 1
        return offset

    def _run(self, command: Command) -> Answer:
        return self.commands([command])[0]

    def _apply(self, entries: list[tuple[int, Any]]) -> None:
        self._write([*self.engine.command(entries, self._now), *self.engine.pay()])

    def _write(self, caused: Sequence[CommandEffects | Paid]) -> None:
        for effects in caused:
            queries = self.engine.queries_of(effects.task)
            encoder = Encoder(queries, max_ids=self.engine.limits.ids, max_bytes=1 << 20)
            written = encoder.commands(effects, self.engine.tables[effects.task])
            self._outputs += [tuple(output) for output in written]
        for task in self.engine.tables:
            self._save(task)

    def _save(self, task: Task) -> None:
        for key, value in self.engine.state_records(task):
            if value is None:
                self._state[task].pop(key, None)
            else:
                self._state[task][key] = value
