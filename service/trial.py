"""Dry runs: which queries would these events match? The same decoder and the same index as in earnest.

Nothing is remembered: no stream moves, nothing is carried, and a text that no query and no stream has named
gets no code of its own. Not for: borders, which need to know where a stream was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from service.decode import Decoded, Decoder
from service.engine.categories import Dictionary, overlays
from service.engine.effects import Refused
from service.engine.engine import Engine
from service.engine.queryset import QuerySet
from service.index.protocol import Points
from service.log.port import Record
from service.model import Reason, Refusal
from service.tenants import DEFAULT_TENANT

#: So many hits are in memory at once, beside what has been found: events are stabbed so few at a time that
#: they cannot have more, or one by one.
_HITS_AT_ONCE = 1_000_000


def try_events(
    engine: Engine,
    source: str,
    messages: Sequence[bytes],
    *,
    max_bytes: int,
    tenant: str = DEFAULT_TENANT,
) -> list[list[str] | Refused]:
    """For every event of these messages, in order, the ids of the tenant's queries that it satisfies, sorted,
    or why it would be refused. O(bytes + one stab an event)."""
    return try_some(engine, source, messages, max_bytes=max_bytes, tenant=tenant).events


class Tried(NamedTuple):
    """Events in order; ``whole``: with the last one."""

    events: list[list[str] | Refused]
    whole: bool


def try_some(
    engine: Engine,
    source: str,
    messages: Sequence[bytes],
    *,
    max_bytes: int,
    tenant: str = DEFAULT_TENANT,
    begin: int = 0,
    most_ids: float = math.inf,
) -> Tried:
    """As ``try_events``, from the event number ``begin`` on, and no more once ids come to ``most_ids``."""
    queries = engine.sets[source]
    decoded = _decoded(queries, overlays(queries.dictionaries), messages, max_bytes)
    batch = decoded.batch
    rows: dict[tuple[int, int], int | Refused] = {
        (refused.offset, refused.item): refused for refused in decoded.refused
    }
    places = zip(batch.offsets.tolist(), batch.items.tolist(), strict=True)
    rows |= {place: row for row, place in enumerate(places)}
    wanted = [rows[place] for place in sorted(rows)[begin:]]
    some = max(1, _HITS_AT_ONCE // max(len(queries.names), 1))
    tried: list[list[str] | Refused] = []
    ids = 0
    while ids < most_ids and len(tried) < len(wanted):
        chosen = wanted[len(tried) : len(tried) + some]
        points = batch.values[[row for row in chosen if isinstance(row, int)]]
        found = iter(engine.matching(source, points, tenant))
        more = [row if isinstance(row, Refused) else next(found) for row in chosen]
        ids += sum(len(one) for one in more if isinstance(one, list))
        tried += more
    return Tried(tried, len(tried) == len(wanted))


def read_event(
    queries: QuerySet, dictionaries: Mapping[str, Dictionary], message: bytes, *, max_bytes: int
) -> Points:
    """The point of one event, ``float64[1, d]``. Raises Refusal, of the field ``event``: whatever an event is
    refused for, and malformed where the message holds several or none."""
    decoded = _decoded(queries, dictionaries, [message], max_bytes)
    if decoded.events != 1:
        raise Refusal(Reason.MALFORMED, "event", "must be one event, not a list of them")
    for refused in decoded.refused:
        raise Refusal(refused.reason, "event", refused.detail)
    return decoded.batch.values


def _decoded(
    queries: QuerySet, dictionaries: Mapping[str, Dictionary], messages: Sequence[bytes], max_bytes: int
) -> Decoded:
    decoder = Decoder(queries.source, dictionaries, max_bytes=max_bytes)
    return decoder.decode([Record(i, 0, None, message) for i, message in enumerate(messages)])
