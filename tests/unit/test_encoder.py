"""The encoder against one that a child could read: a dict for each record."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from service.decode import Decoder
from service.engine.commands import Command, PutQuery, PutSource
from service.engine.effects import LEAVE, CommandEffects, EventEffects, Task
from service.engine.engine import Engine, EngineLimits, values
from service.engine.queryset import QuerySet
from service.log.port import Output, Record
from service.tenants import order
from service.wire import Encoder

TASK = Task("events.s", 0)
SOURCE = {"attributes": {"x": "number", "kind": "category"}}
WHERE = st.sampled_from(["x >= 0", "x >= 1", "x < 2", "x < 1", "kind == 'ü'", "kind != 'tug'"])
SELECT = st.sampled_from([[], [], ["x"], ["kind", "x"], ["x", "kind", "x"]])
QUERY = st.tuples(
    st.sampled_from(["a", "a-", "aa", "a.b", "a~", "Z", "0", "z" * 200]),
    st.sampled_from(["default", "acme", "zed"]),
    WHERE,
    SELECT,
)
EVENT = st.tuples(
    st.sampled_from(["v", 'a"b\\c\n🚢', "ü", "%d", "\u2028\x7f"]),
    st.sampled_from([None, None, 0, -5, 2**53, 1_700_000_000_000]),
    st.sampled_from([None, -1, 0.5, 1, 1e300]),
    st.sampled_from([None, "tug", 'ü"']),
)


def _is_of(queries: QuerySet, slots: list[int]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Tenant, id and what is selected of some queries."""
    tenants = queries.tenants
    return [
        (tenants.names[tenants.at[slot]], queries.public_names[slot], queries.projections[slot])
        for slot in slots
    ]


def _attrs(queries: QuerySet, effects: EventEffects, row: int, names: Iterable[str]) -> dict[str, Any]:
    found = values(queries, effects.points[row])
    return {name: found[name] for name in names if name in found}


def _written(topic: str, record: dict[str, Any]) -> Output:
    return Output(topic, record["stream_id"].encode(), msgspec.json.encode(record))


def _plain(queries: QuerySet, effects: EventEffects, max_ids: int) -> list[Output]:
    """The matches and borders of a batch, by row."""
    batch, outputs = effects.batch, list[Output]()
    for row, stream_id in enumerate(batch.stream_ids):
        ts = int(batch.ts[row]) if batch.timed[row] else int(batch.log_ts[row])
        place = {"topic": TASK.topic, "partition": TASK.partition}
        origin = {**place, "offset": int(batch.offsets[row]), "row": int(batch.items[row])}

        def head(tenant: str, stream_id: str = stream_id) -> dict[str, Any]:
            return {"v": 1, "tenant": tenant, "source": "s", "stream_id": stream_id}

        hits = _is_of(queries, effects.matches.slots[effects.matches.rows == row].tolist())
        hits.sort(key=lambda hit: (order(hit[0]), hit[2], hit[1]))
        for (tenant, select), some in groupby(hits, lambda hit: (hit[0], hit[2])):
            ids = [id for _, id, _ in some]
            chunks = [ids[at : at + max_ids] for at in range(0, len(ids), max_ids)]
            for number, chunk in enumerate(chunks, start=1):
                parted = {"chunk": number, "chunks": len(chunks)} if len(chunks) > 1 else {}
                late = {"late": True} if effects.late[row] else {}
                attrs = {"attrs": _attrs(queries, effects, row, select)}
                told = {"ts": ts, "queries": chunk, **parted, **late, **attrs, "origin": origin}
                outputs.append(_written("matches", {**head(tenant), **told}))
        borders = effects.borders
        for i in (borders.causes == row).nonzero()[0].tolist():
            begin, end = borders.starts[i : i + 2].tolist()
            pairs = _is_of(queries, borders.slots[begin:end].tolist())
            sides: list[list[str]] = [[], [], []]
            for side, (_, id, _) in zip(borders.sides[begin:end].tolist(), pairs, strict=True):
                sides[side].append(id)
            leave, enter, cross = map(sorted, sides)
            told = {
                "seq": int(borders.seq[i]),
                "ts": int(borders.ts[i]),
                "reason": "stream_removed" if batch.removal[row] else "event",
                "leave": leave,
                "enter": enter,
                "cross": cross,
                "attrs": _attrs(queries, effects, row, sorted({one for *_, names in pairs for one in names})),
                "origin": origin,
            }
            outputs.append(_written("borders", {**head(pairs[0][0]), **told}))
    return outputs


def _begun(queries: list[Any], max_ids: int, policies: dict[str, Any]) -> Engine:
    engine = Engine(engine_limits=EngineLimits(ids=max_ids))
    commands: list[Command] = [PutSource("s", {**SOURCE, **policies})]
    for id, tenant, where, select in queries:
        body = {"source": "s", "where": where, "select": select, "on": ["match", "enter", "leave", "cross"]}
        if "kind" in where:
            body["on"] = ["match", "enter", "leave"]
        commands.append(PutQuery(id, body, tenant=tenant))
    draft = engine.draft(0)
    entries = [draft.prepare(command).entry for command in commands]
    engine.command([(i, entry.body) for i, entry in enumerate(entries) if entry is not None], 0)
    engine.assign(TASK, ())
    return engine


def _records(events: list[Any]) -> list[Record]:
    records = []
    for offset, (stream_id, ts, x, kind) in enumerate(events):
        told = {"ts": ts, "x": x, "kind": kind}
        event = {"stream_id": stream_id, **{name: one for name, one in told.items() if one is not None}}
        removes = ts is None and x is None and kind is None
        value = None if removes else json.dumps([event] * (1 + offset % 2)).encode()
        records.append(Record(10**offset, 5 + offset, stream_id.encode(), value))
    return records


@settings(deadline=None)
@given(
    st.lists(QUERY, max_size=12),
    st.lists(EVENT, min_size=1, max_size=12),
    st.integers(1, 3),
    st.sampled_from(["no_border", "process"]),
)
def test_records_are_those_of_a_plain_encoder(
    queries: list[Any], events: list[Any], max_ids: int, late: str
) -> None:
    """To the byte, and in the same order."""
    engine = _begun(queries, max_ids, {"late": late})
    own = engine.sets["s"]
    encoder = Encoder(own, max_ids=max_ids, max_bytes=1 << 20)
    decoded = Decoder(own.source, own.dictionaries, max_bytes=1 << 20).decode(_records(events))
    assert not decoded.refused
    for effects in engine.apply(TASK, decoded.batch):
        assert isinstance(effects, EventEffects)
        written = encoder.events(effects, decoded.originals)
        assert written.outputs == _plain(own, effects, max_ids)
        offsets = [json.loads(value)["origin"]["offset"] for _, _, value in written.outputs]
        assert written.offsets.tolist() == offsets


def test_no_event_may_list_the_ids_of_another_side() -> None:
    """A record with leaves, enters and crosses at once has each in its own list."""
    where = ["x < 0", "1 <= x < 2", "x >= 3", "x >= 2"]
    engine = _begun([(f"q{i}", "default", text, []) for i, text in enumerate(where)], 10, {})
    own = engine.sets["s"]
    decoder = Decoder(own.source, own.dictionaries, max_bytes=1 << 20)
    encoder = Encoder(own, max_ids=10, max_bytes=1 << 20)
    told: list[Any] = []
    for offset, x in enumerate([-1, 4]):
        record = Record(offset, 0, None, json.dumps({"stream_id": "v", "x": x}).encode())
        decoded = decoder.decode([record])
        (effects,) = engine.apply(TASK, decoded.batch)
        assert isinstance(effects, EventEffects)
        assert (effects.borders.sides == LEAVE).sum() == offset
        told += [json.loads(one.value) for one in encoder.events(effects, decoded.originals).outputs]
    moved = [one for one in told if "seq" in one][-1]
    assert (moved["leave"], moved["enter"], moved["cross"]) == (["q0"], ["q2", "q3"], ["q1"])


def test_records_of_time_say_what_was_due() -> None:
    engine = _begun([], 10, {"stream_ttl": 5})
    draft = engine.draft(0)
    entry = draft.prepare(PutQuery("q", {"source": "s", "where": "x > 0", "select": ["x"]})).entry
    assert entry is not None
    engine.command([(1, entry.body)], 0)
    own = engine.sets["s"]
    record = Record(0, 100, None, b'{"stream_id": "v", "ts": 100, "x": 2.5}')
    engine.apply(TASK, Decoder(own.source, own.dictionaries, max_bytes=1 << 20).decode([record]).batch)
    encoder = Encoder(own, max_ids=10, max_bytes=1 << 20)
    outputs = []
    for effects in engine.tick(TASK, 1_000_000):
        assert isinstance(effects, CommandEffects)
        outputs += encoder.commands(effects, engine.tables[TASK])
    (output,) = outputs
    assert output == Output(
        "borders",
        b"v",
        b'{"v":1,"tenant":"default","source":"s","stream_id":"v","seq":2,"ts":105,"reason":"stream_removed",'
        b'"leave":["q"],"enter":[],"cross":[],"attrs":{"x":2.5},"origin":{"timer":"stream_removed"}}',
    )
