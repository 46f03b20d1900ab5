"""What it costs to decode an event to columns, by the format that it comes in.

The same events in each, all in one process, in turns; CPU time of the thread, the best of several; the ratio
to JSON is what counts. The last column is a hash of what each made of them.

    python -m tests.bench.bench_formats
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple

from service.decoders import decoder_of
from service.engine.categories import Dictionary
from service.language import parse_source
from service.log.port import Record
from service.rows import AnyDecoder, Registered
from tests.unit import encoders
from tests.unit.encoders import Field, avro, descriptors, file_of, framed, message_class

EVENTS = 5_000
ROUNDS = 9
ATTRIBUTES = {"lat": "number", "lon": "number", "sog": "number", "kind": "category"}


class Case(NamedTuple):
    name: str
    format: Any
    encode: Callable[[dict[str, Any]], bytes]


class Running(NamedTuple):
    case: Case
    decoder: AnyDecoder
    records: list[Record]
    seconds: list[float]
    check: str


def event(i: int) -> dict[str, Any]:
    return {
        "stream_id": f"v-{i % 997}",
        "ts": 1_641_168_000_000 + i,
        "lat": 29.5 + i * 1e-6,
        "lon": -95.1 - i * 1e-6,
        "sog": 12.1,
        "kind": ("tug", "tanker", "cargo")[i % 3],
    }


def schema(unit: str) -> dict[str, Any]:
    types: dict[str, Any] = {
        "stream_id": "string",
        "ts": {"type": "long", "logicalType": f"timestamp-{unit}"},
        "lat": "double",
        "lon": "double",
        "sog": ["null", "double"],
        "kind": "string",
    }
    fields = [{"name": name, "type": type_} for name, type_ in types.items()]
    return {"type": "record", "name": "Seen", "fields": fields}


def protobuf(name: str, mark: str, *, registry: bool) -> Case:
    """``mark``: ``?`` for fields that can tell whether they are set."""
    kinds = {"stream_id": Field.TYPE_STRING, "ts": Field.TYPE_INT64, "kind": Field.TYPE_STRING}
    names = enumerate(event(0), 1)
    fields = [(field + mark, number, kinds.get(field, Field.TYPE_DOUBLE)) for number, field in names]
    file = file_of({"Seen": fields})
    seen = message_class(file, "fleet.Seen")
    format = {
        "type": "protobuf",
        "descriptors": descriptors(file),
        "message": "fleet.Seen",
        "registry": registry,
    }

    def encode(event: dict[str, Any]) -> bytes:
        body = seen(**event).SerializeToString()
        return framed(7, body, [0]) if registry else body

    return Case(name, format, encode)


def cases() -> Iterator[Case]:
    millis, micros = schema("millis"), schema("micros")
    yield Case("JSON", "json", encoders.as_json)
    yield protobuf("Protobuf", "", registry=False)
    yield protobuf("Protobuf, all fields optional", "?", registry=False)
    yield protobuf("Protobuf, framed", "", registry=True)
    yield Case("Avro", {"type": "avro", "schema": millis}, lambda event: avro(event, millis))
    yield Case(
        "Avro, ts in microseconds",
        {"type": "avro", "schema": micros},
        lambda event: avro({**event, "ts": event["ts"] * 1000}, micros),
    )
    yield Case("Avro, framed", encoders.AVRO_FRAMED, lambda event: framed(7, avro(event, millis)))


def begin(case: Case) -> Running:
    source = parse_source("s", {"attributes": ATTRIBUTES, "format": case.format})
    decoder = decoder_of(source, {"kind": Dictionary()}, max_bytes=1_000_000)
    records = [Record(i, 0, None, case.encode(event(i))) for i in range(EVENTS)]
    if decoder.lacking(records):
        decoder.learn({7: Registered(json.dumps(schema("millis")))})
    batch = decoder.decode(records).batch
    told = repr((list(batch.stream_ids), batch.ts.tolist(), batch.values.tolist()))
    return Running(case, decoder, records, [], sha256(told.encode()).hexdigest()[:12])


def main() -> None:
    running = [begin(case) for case in cases()]
    for _ in range(ROUNDS):
        for one in running:
            started = time.thread_time()
            one.decoder.lacking(one.records)
            one.decoder.decode(one.records)
            one.seconds.append(time.thread_time() - started)
    base = min(running[0].seconds)
    print("| format | of JSON | ns an event | bytes | columns |\n|---|---|---|---|---|")
    for one in running:
        best = min(one.seconds)
        size = sum(len(record.value or b"") for record in one.records) / EVENTS
        print(
            f"| {one.case.name} | {best / base:.2f} | {best / EVENTS * 1e9:.0f} | {size:.0f} | {one.check} |"
        )


if __name__ == "__main__":
    main()
