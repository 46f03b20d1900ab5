"""What happens to a fleet in a test, and the judgement at the end.

Events go straight to the topics, as other programs send them; commands go over HTTP to whoever lives. Nobody
remembers what was sent: the judge reads the log as it was written (``history``), lets the oracle live through
it in one go, and compares every record of every stream.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from kafka import KafkaProducer

from service.log.kafka_library import KAFKA_PYTHON
from service.log.port import Position, TopicPartition
from tests.api.harness import eventually
from tests.faults.fleet import PARTITIONS, WITHIN_S, Fleet, Worker, fleet
from tests.faults.history import Broker
from tests.faults.oracle import Uninterrupted, by_stream, check_balance

STREAMS = 40
TIMED_STREAMS = 10
QUERIES = 60
SOURCES: dict[str, dict[str, Any]] = {
    "s": {"attributes": {"x": "number", "y": "number", "kind": "category"}},
    # Nothing but time moves its memberships after the beginning.
    "slow": {"attributes": {"x": "number"}, "stream_ttl": "5s", "stale_after": "3s"},
}
OUTPUTS = ("matches", "borders", "dead_letter")
MAX_IDS = 12
MAX_BYTES = 1_000_000
#: How long a client waits for an answer.
ANSWER_S = 5.0
#: How long one who does not mind whether it is done.
HASTY_S = 0.7
#: Longer than an event is under way.
AHEAD_MS = 3_000


def _had(metrics: str) -> list[int]:
    """The partitions of the streams that time moves, as one worker counts those that it has."""
    lags = re.findall(r"^rangewatch_consumer_lag_events{(.*)} ", metrics, re.MULTILINE)
    return [int(labels.split('partition="')[1].split('"')[0]) for labels in lags if "events.slow" in labels]


class Promise(NamedTuple):
    """What a client was told: the command's offset, where it holds from, and whether it made a query."""

    command: int
    where: dict[TopicPartition, int]
    made: bool


class World:
    """See the module. All that is drawn comes from ``rng``."""

    def __init__(self, fleet: Fleet, address: str, prefix: str, rng: random.Random) -> None:
        self.fleet = fleet
        self.broker = Broker(address, prefix)
        self.prefix = prefix
        self.group = f"{prefix}group"
        self.rng = rng
        self.sent = 0
        #: whether events are sent that begin waits: they must not be under way for long
        self.timed = True
        self.promises: list[Promise] = []
        self._producer = KafkaProducer(bootstrap_servers=address, acks="all", linger_ms=5, retries=1000)

    def close(self) -> None:
        self._producer.close(timeout=5)

    # ---- workers

    def start(self, *names: str) -> None:
        """Starts workers and waits until they are ready."""
        for name in names:
            self.fleet.start(name)
        for name in names:
            worker = self.fleet.workers[name]
            eventually(lambda worker=worker: worker.ready, f"{name} is ready", within_s=WITHIN_S)

    def begin(self, *names: str) -> None:
        """Workers, sources, and the first queries."""
        self.start(*names)
        for name, body in SOURCES.items():
            self.insist(lambda name=name, body=body: self.say("PUT", f"/v1/sources/{name}", json=body))
        for number in range(6):
            dwells = {"source": "slow", "where": f"x > {number}", "for": 300 * number + 100}
            self.insist(lambda n=number, body=dwells: self.say("PUT", f"/v1/queries/slow-{n}", json=body))
        self.insist(lambda: self.bulk(QUERIES))

    def insist(self, ask: Callable[[], httpx.Response]) -> None:
        """Asks until it is done: another worker may not have heard yet of what it builds upon."""

        def done() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                answer = ask()
                assert answer.is_success or answer.status_code in (422, 503), answer.text
                return answer.is_success
            return False

        eventually(done, "a change is made", within_s=WITHIN_S)

    # ---- traffic

    def send(self, events: int) -> None:
        """Events, tombstones and rubbish to the topics, and returns when the broker has them."""
        rng = self.rng
        now = time.time_ns() // 1_000_000
        for _ in range(events):
            self.sent += 1
            kind = rng.random()
            if kind < 0.1 and self.timed:
                # Stamped ahead, or one that is under way while a wait ends would come too late for it.
                ts, id = now + AHEAD_MS, f"w{rng.randrange(TIMED_STREAMS)}"
                body = json.dumps({"stream_id": id, "ts": ts, "x": rng.randrange(8)}).encode()
                self._send("slow", id, body, ts)
                continue
            id = f"v{rng.randrange(STREAMS)}"
            if kind < 0.12:
                self._send("s", id, None)
            elif kind < 0.14:
                self._send("s", rng.choice([id, None]), rng.choice([b"{", b"[1]", b'{"x": 1}', b"\xff"]))
            elif kind < 0.2:
                self._send("s", id, json.dumps([self._event(id, now) for _ in range(4)]).encode())
            else:
                self._send("s", id, json.dumps(self._event(id, now)).encode())
        self._producer.flush(WITHIN_S)

    def _event(self, id: str, now: int) -> dict[str, Any]:
        rng = self.rng
        event = {
            "stream_id": id,
            "ts": now - rng.choice([0, 0, 0, 5_000]),
            "x": rng.randrange(20),
            "y": rng.choice([rng.random(), "no number", None, 1]),
            "kind": rng.choice(["tug", "tanker", "ferry"]),
        }
        return {name: value for name, value in event.items() if rng.random() > 0.1 or name == "stream_id"}

    def _send(self, source: str, key: str | None, value: bytes | None, ts: int | None = None) -> None:
        key_bytes = key.encode() if key else None
        self._producer.send(f"{self.prefix}events.{source}", value, key_bytes, timestamp_ms=ts)

    def query(self) -> dict[str, Any]:
        rng = self.rng
        low = rng.randrange(20)
        where = rng.choice([f"{low} <= x < {low + rng.randrange(1, 8)}", f"x > {low} and kind == 'tug'"])
        return {
            "source": "s",
            "where": where,
            "initial": rng.choice(["emit", "emit", "ignore"]),
            "on": rng.choice([["match", "enter", "leave"], ["enter", "leave"], ["match"]]),
            "select": rng.choice([[], ["x"], ["x", "kind"]]),
            "enabled": rng.random() > 0.1,
        }

    def bulk(self, count: int, *, by: Worker | None = None) -> httpx.Response:
        """Registers many queries at once, through any worker or that one."""
        ids = self.rng.sample(range(2 * QUERIES), count)
        lines = [json.dumps({"id": f"q{number}", **self.query()}) for number in ids]
        return self.say("POST", "/v1/queries:bulk", by=by, content="\n".join(lines).encode())

    def command(self) -> None:
        """One change of some query, by whoever lives; it may come to nothing, or be done unheard of."""
        rng = self.rng
        path = f"/v1/queries/q{rng.randrange(2 * QUERIES)}"
        change: Callable[[], httpx.Response] = rng.choice(
            [
                lambda: self.say("PUT", path, json=self.query(), timeout=HASTY_S),
                lambda: self.say("PATCH", path, json={"enabled": rng.random() < 0.5}, timeout=HASTY_S),
                lambda: self.say("DELETE", path, timeout=HASTY_S),
            ]
        )
        with contextlib.suppress(httpx.HTTPError):
            answer = change()
            assert answer.status_code in (200, 201, 204, 404, 503), answer.text

    def say(self, method: str, path: str, *, by: Worker | None = None, **how: Any) -> httpx.Response:
        """One request to ``by``, or to any who lives. Raises httpx.HTTPError."""
        urls = [url for worker in ([by] if by else self.fleet.living()) if (url := worker.url)]
        if not urls:
            raise httpx.ConnectError("nobody lives")
        answer = httpx.request(method, self.rng.choice(urls) + path, **{"timeout": ANSWER_S, **how})
        if answer.is_success and answer.content and method != "GET":
            self._note(answer.json().get("active_from"), made=answer.status_code == 201)
        return answer

    def _note(self, active_from: dict[str, Any] | None, *, made: bool) -> None:
        if active_from:
            where = {
                TopicPartition(one["topic"], one["partition"]): one["offset"]
                for one in active_from["positions"]
            }
            self.promises.append(Promise(active_from["command"], where, made))

    # ---- the judgement

    def catch_up(self) -> None:
        """Waits until everything that was sent and asked for has been done and committed."""
        last = max((read.record.offset for read in self.broker.read("queries")), default=-1)

        def done() -> bool:
            for source in SOURCES:
                topic = f"events.{source}"
                committed = self.broker.committed(topic, self.group)
                for number, end in self.broker.ends(topic).items():
                    position = committed.get(number, Position(0, 0))
                    if position.event < end or (end and position.command <= last):
                        return False
            return True

        eventually(done, "all is committed", within_s=WITHIN_S)

    def judge(self) -> None:
        """Compares all that was written with what the oracle writes."""
        self.catch_up()
        eventually(self._silent, "streams that are silent are removed", within_s=WITHIN_S)
        for worker in self.fleet.living():
            worker.stop()
        commands = [record for _, record in self.broker.read("queries")]
        steps = self.broker.positions(self.group)
        lives: list[Uninterrupted] = []
        for source in SOURCES:
            events = defaultdict(list)
            for number, record in self.broker.read(f"events.{source}"):
                events[number].append(record)
            for number in range(PARTITIONS):
                partition = TopicPartition(f"events.{source}", number)
                life = Uninterrupted(partition, max_ids=MAX_IDS, max_bytes=MAX_BYTES)
                life.run(steps.get(partition, []), commands, events[number])
                lives.append(life)
        written = by_stream(
            (topic, record.key, record.value) for topic in OUTPUTS for _, record in self.broker.read(topic)
        )
        expected = by_stream(output for life in lives for output in life.outputs)
        self._compare(written, expected)
        inside = check_balance(written)
        assert any(inside.values()), "streams are inside of something in the end"
        self._keep_promises(steps)

    def _silent(self) -> bool:
        """Whether time alone has nothing left to do: its streams have been silent for too long. Who lacks a
        partition does not know its streams either."""
        living = self.fleet.living()
        had = {number for one in living for number in _had(httpx.get(f"{one.url}/metrics", timeout=15).text)}
        return had == set(range(PARTITIONS)) and all(
            httpx.get(f"{worker.url}/v1/streams/w{number}?source=slow", timeout=15).status_code == 404
            for worker in living
            for number in range(TIMED_STREAMS)
        )

    def _compare(self, written: Any, expected: Any) -> None:
        assert sum(map(len, expected.values())) > 0
        for stream in sorted({*written, *expected}, key=repr):
            mine, theirs = written.get(stream, []), expected.get(stream, [])
            for place, (one, other) in enumerate(zip(mine, theirs, strict=False)):
                assert one == other, f"{stream}, record {place}: {one} was written, not {other}"
            assert len(mine) == len(theirs), f"{stream}: {mine[len(theirs) :]} or {theirs[len(mine) :]}"

    def _keep_promises(self, steps: dict[TopicPartition, list[Position]]) -> None:
        """A change holds in each partition from the position that clients were told; what is new, from just
        there."""
        assert self.promises
        for command, where, made in self.promises:
            for partition, offset in where.items():
                before = [one for one in steps.get(partition, []) if one.command <= command]
                if before:
                    applied_at = before[-1].event
                    told = f"command {command} in {partition}: from {offset} on, and it was {applied_at}"
                    assert applied_at == offset if made else applied_at <= offset, told


@contextlib.contextmanager
def world(
    folder: Path, address: str, prefix: str, seed: int, *more: str, clients: Sequence[str] = (KAFKA_PYTHON,)
) -> Iterator[World]:
    """A world that says, if it fails, with what seed and what its workers said last."""
    with fleet(folder, address, prefix, *more, clients=clients) as made:
        one = World(made, address, prefix, random.Random(seed))
        try:
            yield one
        except BaseException:
            print(f"seed {seed}\n{made.outputs()}")
            raise
        finally:
            one.close()
