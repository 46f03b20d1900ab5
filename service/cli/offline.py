"""Queries against events without a service: an engine of its own; the same catalog, decoder and index."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from service.cli.errors import FAILED, USAGE, CliError
from service.cli.files import BadRow, Row, lines_of, reading, unzipped
from service.cli.text import escaped
from service.engine.catalog import Draft
from service.engine.commands import Command, Entry, PutQuery, PutSource
from service.engine.effects import Refused
from service.engine.engine import Engine
from service.language import load_json
from service.model import Refusal
from service.trial import try_events

_BATCH = 10_000
_MAX_BYTES = 1_000_000
_SHOWN = 5


def load(file: Path, attributes: dict[str, str], source: str | None) -> tuple[Engine, str]:
    """An engine with the queries of a file, and the name of their source. Raises CliError on any refusal."""
    refusals: list[str] = []
    bodies = list(_bodies(file, refusals))
    names = {
        body["source"] for _, body in bodies if isinstance(body, dict) and isinstance(body.get("source"), str)
    }
    if source is None and len(names) > 1:
        raise CliError(f"{file} has queries of {', '.join(sorted(names))}; choose one by --source", USAGE)
    if source is not None:
        names &= {source}
    if not names and not refusals:
        raise CliError(f"{file} has no queries" + (f" of {source!r}" if source else ""))
    name = names.pop() if names else "none"
    engine = Engine()
    draft = engine.draft(now_ms=time.time_ns() // 1_000_000)
    entries = [_prepared(draft, PutSource(name, {"attributes": attributes}), "--attributes", refusals)]
    for number, body in bodies:
        if source is None or not isinstance(body, dict) or body.get("source") == source:
            entries.append(_prepared(draft, PutQuery(None, body), f"line {number}", refusals))
    if refusals:
        raise CliError(f"{file}: " + "\n".join(map(escaped, refusals[:_SHOWN])), FAILED)
    engine.command(
        [(offset, entry.body) for offset, entry in enumerate(entries) if entry is not None], now_ms=0
    )
    return engine, name


def _bodies(file: Path, refusals: list[str]) -> Iterator[tuple[int, Any]]:
    with reading(file), file.open("rb") as raw, unzipped(file, raw) as stream:
        for number, line in enumerate(lines_of(stream), 1):
            if line.strip():
                try:
                    yield number, load_json(line)
                except Refusal as refusal:
                    refusals.append(f"line {number}: {refusal}")


def _prepared(draft: Draft, command: Command, place: str, refusals: list[str]) -> Entry | None:
    try:
        return draft.prepare(command).entry
    except Refusal as refusal:
        refusals.append(f"{place}: {refusal}")
        return None


def results(
    engine: Engine, source: str, rows: Iterable[Row | BadRow]
) -> Iterator[tuple[bytes, list[str] | str]]:
    """Each event with the ids of its queries, or why it is refused."""
    events = _flat(rows)
    while some := list(islice(events, _BATCH)):
        readable = [event for event in some if isinstance(event, bytes)]
        tried = iter(try_events(engine, source, readable, max_bytes=_MAX_BYTES))
        for event in some:
            if isinstance(event, BadRow):
                yield b"", f"line {event.number}: {event.detail}"
                continue
            result = next(tried)
            yield event, f"{result.detail} ({result.reason})" if isinstance(result, Refused) else result


def _flat(rows: Iterable[Row | BadRow]) -> Iterator[bytes | BadRow]:
    """Single events: an array in NDJSON is taken apart."""
    for row in rows:
        if isinstance(row, BadRow):
            yield row
        elif row.text[:1] == b"[":
            yield from map(bytes, msgspec.json.decode(row.text, type=list[msgspec.Raw]))
        else:
            yield row.text
