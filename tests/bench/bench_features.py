"""What ``keep``, ``for``, ``cooldown``, ``once``, ``cross`` and aggregates cost queries that do not use them.

One engine has plain queries only; each of the others has the same and ten more that use a feature, on a
region where no stream ever is. All get the same events, batch by batch in turns, so what differs is the
feature and not the minute; the ratio is that of the best thread CPU times. Engines whose effects differ are
an error. What the features cost those who do use them is measured as well: ten queries around everything.

    python -m tests.bench.bench_features [--queries 10000] [--streams 1000] [--batches 8] [--rounds 7]
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from service.engine.commands import PutQuery, PutSource
from service.engine.effects import Batch, EventEffects, Task
from service.engine.engine import Engine

TASK = Task("events.fleet", 0)
SOURCE = {"attributes": {"lat": "number", "lon": "number", "speed": "number"}}
BATCH = 10_000
BATCH_MS = 1_000
USERS = 10

ELSEWHERE = "10 <= lat < 11 and 10 <= lon < 11"
EVERYWHERE = "-1 <= lat < 2 and -1 <= lon < 2"
FEATURES: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "keep": {"keep": None},
    "for": {"for": "30s"},
    "cooldown": {"cooldown": "30s"},
    "once": {"once": True},
    "cross": {"on": ["match", "enter", "leave", "cross"]},
    "aggregates": {"aggregates": {"every": "1s", "of": ["speed"]}},
}
"""By name, the fields that ten queries have; what they keep is a little more than their region."""
KEEPS = {ELSEWHERE: "9 <= lat < 12 and 9 <= lon < 12", EVERYWHERE: "-2 <= lat < 3 and -2 <= lon < 3"}


class Cost(NamedTuple):
    """``ratio``: time of the engine without the feature to the time with it, 1 for no cost; ``us``: with it,
    an event. ``digest``: of what all engines told of the plain queries."""

    ratio: float
    us: float
    digest: str


def batches(count: int, size: int, streams: int, seed: int) -> list[Batch]:
    """Random walks in the unit square."""
    rng = np.random.default_rng(seed)
    place = rng.random((streams, 2))
    made = []
    for _ in range(count):
        who = rng.integers(0, streams, size)
        values = np.empty((size, 3))
        for i, stream in enumerate(who.tolist()):
            place[stream] = np.clip(place[stream] + rng.normal(0, 0.002, 2), 0, 1)
            values[i, :2] = place[stream]
        values[:, 2] = rng.normal(10, 3, size)
        none = np.zeros(size, dtype=np.int64)
        made.append(
            Batch(
                offsets=none,
                items=none.astype(np.int32),
                log_ts=none,
                stream_ids=[f"vehicle-{stream:05d}" for stream in who.tolist()],
                removal=np.zeros(size, dtype=np.bool_),
                ts=none,
                timed=np.zeros(size, dtype=np.bool_),
                values=values,
            )
        )
    return made


def plain_queries(count: int, seed: int) -> list[dict[str, Any]]:
    """Square fences, so large that a point lies in one of them on average."""
    side = (1 / count) ** 0.5
    corners = np.random.default_rng(seed + 1).random((count, 2)) * (1 - side)
    return [
        {
            "id": f"fence-{i:05d}",
            "source": "fleet",
            "where": {
                "any": [{"lat": {"gte": lat, "lt": lat + side}, "lon": {"gte": lon, "lt": lon + side}}]
            },
        }
        for i, (lat, lon) in enumerate(corners.tolist())
    ]


def engine_with(queries: Sequence[dict[str, Any]]) -> Engine:
    engine = Engine()
    draft = engine.draft(0)
    bodies = [PutSource("fleet", SOURCE), *(PutQuery(None, query) for query in queries)]
    entries = [draft.prepare(command).entry for command in bodies]
    engine.command([(offset, entry.body) for offset, entry in enumerate(entries) if entry], 0)
    engine.assign(TASK, ())
    return engine


def users(feature: str, where: str) -> list[dict[str, Any]]:
    return [{"id": f"user-{i}", "source": "fleet", "where": where, **FEATURES[feature]} for i in range(USERS)]


def measure(where: str, plain: Sequence[dict[str, Any]], made: list[Batch], rounds: int) -> dict[str, Cost]:
    """The cost of each feature, used by ten queries on a region. The engine without is that of the plain
    queries alone where the users are elsewhere, else that with ten plain queries on the region."""
    engines = {name: engine_with([*plain, *users(name, where)]) for name in FEATURES}
    best = dict.fromkeys(engines, float("inf"))
    digests = {name: (hashlib.sha256(), hashlib.sha256()) for name in engines}
    now = 0
    for round_ in range(rounds + 1):  # the first is to warm up
        spent = dict.fromkeys(engines, 0.0)
        for batch in made:
            timed = batch._replace(log_ts=now + np.arange(len(batch.log_ts)) * BATCH_MS // len(batch.log_ts))
            now += BATCH_MS
            gc.collect()
            gc.disable()
            for name, engine in engines.items():
                began = time.thread_time()
                effects = engine.apply(TASK, timed)
                spent[name] += time.thread_time() - began
                for part in effects:
                    if isinstance(part, EventEffects):
                        _digest(digests[name], engine, part)
                engine.state_records(TASK)
            gc.enable()
        if round_:
            best = {name: min(best[name], spent[name]) for name in engines}
    found = {name: "".join(one.hexdigest()[:8] for one in pair) for name, pair in digests.items()}
    if len(set(found.values())) != 1:
        raise ValueError(f"the plain queries were told different things: {found}")
    events = sum(len(batch.ts) for batch in made)
    return {
        name: Cost(best["plain"] / spent_s, spent_s / events * 1e6, found[name])
        for name, spent_s in best.items()
    }


def _digest(digests: Sequence[hashlib._Hash], engine: Engine, effects: EventEffects) -> None:
    """Of what is told of the plain queries, matches and borders apart: a batch may be cut anywhere."""
    queries = engine.sets["fleet"]
    for digest, slots in zip(digests, (effects.matches.slots, effects.borders.slots), strict=True):
        names = [f"{name}\n" for name in queries.ids(slots) if name.startswith("fence")]
        digest.update("".join(names).encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    plain = plain_queries(args.queries, args.seed)
    made = batches(args.batches, BATCH, args.streams, args.seed)
    print(f"{args.queries} plain queries, {args.streams} streams, batches of {BATCH}, seed {args.seed}")
    for title, where in (("no stream is there", ELSEWHERE), ("all streams are there", EVERYWHERE)):
        print(f"{USERS} queries more, {title}:")
        for name, cost in measure(where, plain, made, args.rounds).items():
            print(f"  {name:10} ratio {cost.ratio:.3f}, {cost.us:.3f} us an event, digest {cost.digest}")


if __name__ == "__main__":
    main()
