"""Border logs: written by hand, made at random, and folded by a slow twin that a child could read."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_connector.schemas import BORDER

VISIT_COLUMNS = (
    "tenant", "source", "stream_id", "query",
    "enter_ts", "leave_ts", "duration_ms", "open", "enter_reason", "leave_reason",
)  # fmt: skip

Stream = tuple[str, str, str]


def border(stream_id: str, seq: int, ts: int, **fields: Any) -> dict[str, Any]:
    """A record of ``borders`` as the service writes it; ``fields`` replace the defaults."""
    return {
        "v": 1,
        "tenant": "default",
        "source": "ais",
        "stream_id": stream_id,
        "seq": seq,
        "ts": ts,
        "reason": "event",
        "leave": [],
        "enter": [],
        "cross": [],
        "attrs": {},
        "origin": {"topic": "events.ais", "partition": 0, "offset": ts, "row": 0},
    } | fields


def match(stream_id: str, ts: int, queries: Sequence[str], **fields: Any) -> dict[str, Any]:
    """A record of ``matches`` as the service writes it."""
    return {
        "v": 1,
        "tenant": "default",
        "source": "ais",
        "stream_id": stream_id,
        "ts": ts,
        "queries": list(queries),
        "attrs": {},
        "origin": {"topic": "events.ais", "partition": 0, "offset": ts, "row": 0},
    } | fields


def table(spark: SparkSession, records: Iterable[dict[str, Any]], *, partitions: int = 1) -> DataFrame:
    """A table of borders that holds ``records`` in the order of their offsets, but lies in disorder."""
    rows = []
    for offset, record in enumerate(records):
        partition = hash_of(record["stream_id"]) % partitions
        log = {"topic": "borders", "partition": partition, "offset": offset, "ts": record["ts"]}
        origin = dict.fromkeys(("topic", "partition", "offset", "row", "command", "timer")) | record["origin"]
        attrs = {"numbers": {}, "texts": {}}
        rows.append(record | {"attrs": attrs, "origin": origin, "log": log, "day": date(2026, 1, 1)})
    random.Random(5).shuffle(rows)
    return spark.createDataFrame([tuple(row[name] for name in BORDER.names) for row in rows], BORDER)


def hash_of(text: str) -> int:
    return sum(text.encode())


@dataclass
class Life:
    """What the maker of random logs knows of one stream."""

    seq: int = 0
    inside: set[str] = field(default_factory=set)


def random_log(seed: int, *, length: int = 60) -> list[dict[str, Any]]:
    """A log that balances: three streams, four queries, several causes, removals and resets among them.

    Its source is named after the seed, so that many logs fit in one table.
    """
    rng = random.Random(seed)
    queries = ["a", "b", "c", "d"]
    lives = {stream: Life() for stream in ("s1", "s2", "s3")}
    made: list[dict[str, Any]] = []

    def write(stream: str, **fields: Any) -> None:
        life = lives[stream]
        life.seq += 1
        ts = len(made) * 1000 + rng.randrange(1000)
        made.append(border(stream, life.seq, ts, source=f"log{seed}", **fields))

    def enter_or_leave(stream: str, reason: str) -> None:
        life = lives[stream]
        changed = set(rng.sample(queries, rng.randint(1, 3)))
        leave, enter = sorted(changed & life.inside), sorted(changed - life.inside)
        life.inside ^= changed
        if rng.random() < 0.3 and leave and enter:  # as records are split that hold too many ids
            write(stream, leave=leave, reason=reason)
            leave = []
        write(stream, leave=leave, enter=enter, reason=reason)

    def reset(stream: str) -> None:
        life = lives[stream]
        life.seq = 0
        write(stream, reason="reset")
        if life.inside:
            write(stream, enter=sorted(life.inside), reason="registered")

    def remove(stream: str) -> None:
        life = lives[stream]
        if life.inside:
            write(stream, leave=sorted(life.inside), reason="stream_removed")
            lives[stream] = Life()

    while len(made) < length:
        stream = rng.choice(sorted(lives))
        cause = rng.random()
        if cause < 0.06:
            reset(stream)
        elif cause < 0.16:
            remove(stream)
        elif cause < 0.22 and lives[stream].seq:
            write(stream, cross=["a"])
        else:
            enter_or_leave(stream, rng.choice(["event", "event", "registered", "updated", "disabled"]))
    return made


def folded_visits(records: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The visits of a log, folded record by record: rows of ``VISIT_COLUMNS``, sorted."""
    visits: list[list[Any]] = []
    inside: dict[Stream, dict[str, list[Any]]] = defaultdict(dict)

    def end(visit: list[Any], record: dict[str, Any]) -> None:
        visit[5:8] = [record["ts"], record["ts"] - visit[4], False]
        visit[9] = record["reason"]

    for record in records:
        stream = (record["tenant"], record["source"], record["stream_id"])
        members = inside[stream]
        if record["reason"] == "reset":
            for visit in members.values():
                end(visit, record)
            members.clear()
        for query in record["leave"]:
            end(members.pop(query), record)
        for query in record["enter"]:
            assert query not in members
            members[query] = [*stream, query, record["ts"], None, None, True, record["reason"], None]
            visits.append(members[query])
    return sorted((tuple(visit) for visit in visits), key=repr)
