"""Bytes that nobody meant as an event or a command: a reason for each, and never an exception."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from service import wire
from service.decode import Decoder
from service.engine.categories import Dictionary
from service.engine.engine import Engine
from service.language import parse_source
from service.log.port import Record
from service.model import Late, Missing, Nulls, Reason
from tests.unit.test_decode import _take_nothing

MAX_BYTES = 200
FINE = b'{"stream_id": "a", "ts": 5, "x": 1.5, "kind": "tug", "event": 7, "position": {"lat": -1}}'
FLAT = FINE.replace(b'"position": {"lat": -1}', b'"lat": -1')
POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "missing": st.sampled_from(list(Missing)),
        "nulls": st.sampled_from(list(Nulls)),
        "late": st.sampled_from(list(Late)),
        "dedup": st.sampled_from([None, {"by": "event"}]),
    },
)

#: Pieces of JSON, whole and broken, that make more of a mess together than bytes by chance.
PIECE = st.sampled_from(
    [
        *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\ud800", b"\\u0000", b"null", b"true", b"NaN"),
        *(
            b"-",
            b"1e999",
            b"9007199254740993",
            b"0.1",
            b"-0.0",
            b" ",
            b"\n",
            b"\xff",
            b"\xed\xa0\x80",
            b"\x00",
        ),
        *(
            b'"event":',
            b'"stream_id":',
            b'"ts":',
            b'"x":',
            b'"kind":',
            b'"position":',
            b'"lat":',
            b"{" * 50,
            b"[" * 50,
        ),
        *(b"\xef\xbb\xbf", b'"a"', b'"a":1', "é".encode(), FINE, FINE[:40], b"9" * 400),
    ]
)


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """A good event with some bytes changed, cut out or put in, or none."""
    value = bytearray(draw(st.sampled_from([FINE, FLAT])))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(value)))
        value[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(value)


VALUE = st.one_of(
    st.none(),
    st.binary(max_size=MAX_BYTES + 10),
    st.lists(PIECE, max_size=12).map(b"".join),
    spoilt(),
    st.lists(spoilt(), max_size=3).map(lambda items: b"[" + b",".join(items) + b"]"),
)
KEY = st.one_of(st.none(), st.binary(max_size=4), st.text(max_size=3).map(str.encode), st.just(b"k" * 300))


@settings(deadline=None)
@given(st.lists(st.tuples(KEY, VALUE), max_size=6), POLICIES, st.sampled_from(["lat", "position.lat"]))
@example([(None, b"[" * 100_000), (None, b'{"stream_id":' * 20_000)], {}, "lat")
@example([(None, b'{"stream_id":" ","\x80":0}')], {}, "lat")
@example([(None, b'{"kind":"b"}'), (None, b'{"stream_id":"a","kind":"c"}')], {}, "lat")
@example([(b"\xff", None), (b"", None), (None, b"")], {}, "lat")
def test_every_event_of_any_bytes_is_a_row_or_a_refusal(
    messages: list[tuple[bytes | None, bytes | None]], policies: dict[str, Any], path: str
) -> None:
    body = {"attributes": {"x": "number", "lat": "number", "kind": "category"}, **policies}
    source = parse_source("s", {"paths": {"lat": path}, **body})
    records = [Record(offset, 1_000, key, value) for offset, (key, value) in enumerate(messages)]
    seen = []
    for reader in ("kernel", "typed", "careful"):
        kinds = Dictionary()
        decoder = Decoder(source, {"kind": kinds}, max_bytes=MAX_BYTES)
        if reader != "kernel":
            decoder._flat = None
        if reader == "careful":
            decoder._fast = _take_nothing
        decoded = decoder.decode(records)
        places = Counter(zip(decoded.batch.offsets.tolist(), decoded.batch.items.tolist(), strict=True))
        places.update((one.offset, one.item) for one in decoded.refused)
        assert not places or max(places.values()) == 1, "no event counts twice"
        tombstones = int(decoded.batch.removal.sum())
        assert decoded.events == len(decoded.batch.stream_ids) - tombstones + len(decoded.refused)
        for one in decoded.refused:
            assert isinstance(one.reason, Reason)
            value, original = messages[one.offset][1], decoded.originals[one.offset, one.item]
            assert original == value or (value and original and original in value)
        # A code is what a reader gave a text when it first met it, in a refused event perhaps.
        values = [(x, lat, kinds.text(kind)) for x, lat, kind in decoded.batch.values.tolist()]
        seen.append((places, decoded.refused, values, decoded.batch.event_ids))
    assert seen[0] == seen[1] == seen[2], "all readers judge alike"


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["any", "x", "gt", "in"]), inner)
    ),
    max_leaves=5,
)
SOURCE = {"attributes": {"x": "number"}}
QUERY = {"id": "q", "source": "s", "where": "x > 0", "tags": {"collection": "q"}}


@st.composite
def entries(draw: st.DrawFn) -> Any:
    """Entries of the command log, most of them with something wrong in them."""
    body: dict[str, Any] = {
        "op": draw(st.sampled_from(["source", "query", "delete", "collection", "none", 5])),
        "name": "s",
        "source": SOURCE,
        "id": "q",
        "query": QUERY,
        "kind": "csv",
    }
    for field in draw(st.lists(st.sampled_from(list(body)), max_size=2, unique=True)):
        if draw(st.booleans()):
            del body[field]
        else:
            body[field] = draw(JSON)
    if draw(st.booleans()):
        body["query"] = {
            **QUERY,
            draw(st.sampled_from([*QUERY, "keep", "on", "for", "aggregates"])): draw(JSON),
        }
    return {**body, **draw(st.dictionaries(st.sampled_from(["deleted", "reason", "expires_at"]), JSON))}


@settings(deadline=None)
@given(st.lists(st.one_of(entries(), JSON, st.lists(PIECE, max_size=8).map(b"".join)), max_size=8))
def test_commands_that_nobody_can_read_change_nothing(written: list[Any]) -> None:
    values = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in written]
    engine = Engine()
    for offset, value in enumerate(values):
        engine.command([(offset, wire.command_body(value))], 0)
        assert engine.catalog.offset == offset + 1
    for id, registered in engine.catalog.queries.items():
        assert registered.query.id == id
        assert registered.query.source in engine.catalog.sources
    # Whatever lies in the log, what follows is read.
    good = [
        {"op": "source", "name": "t", "source": SOURCE},
        {"op": "query", "id": "z", "query": {**QUERY, "id": "z", "source": "t"}},
    ]
    for offset, body in enumerate(good, len(values)):
        engine.command([(offset, body)], 0)
    assert engine.catalog.queries["z"].query.source == "t"
