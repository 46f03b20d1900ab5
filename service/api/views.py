"""What the catalog holds, as clients see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

from service.engine.catalog import Quarantined
from service.engine.commands import Outcome, Registered
from service.engine.effects import Task
from service.engine.tally import Content, Tally, empty, together
from service.formats import format_body
from service.index.default.level import PartView
from service.language import dedup_body, print_region, query_body, source_body
from service.model import Query, Refusal, Source


def source_view(source: Source) -> dict[str, Any]:
    return {
        "name": source.name,
        **source_body(source),
        "format": format_body(source.format),
        "dedup": dedup_body(source.dedup),
    }


def index_view(source: Source, indexes: Mapping[str, Sequence[PartView]]) -> dict[str, Any]:
    names = tuple(source.attributes)
    return {
        "source": source.name,
        **{index: [part_view(names, part) for part in parts] for index, parts in indexes.items()},
    }


def part_view(attributes: Sequence[str], part: PartView) -> dict[str, Any]:
    return {
        "structure": part.structure,
        "reason": part.reason,
        "attributes": [attributes[attribute] for attribute in part.attributes],
        "boxes": part.boxes,
        "removed": part.removed,
        "bytes": part.nbytes,
        "predicted_ns": None if isnan(part.predicted_ns) else round(part.predicted_ns, 1),
    }


def query_view(registered: Registered) -> dict[str, Any]:
    """A query as it is registered; ``active_from`` names the command only, positions pass."""
    query = registered.query
    return {
        **query_body(query),
        "etag": str(registered.version),
        "state": "active" if query.enabled else "disabled",
        "active_from": {"command": registered.version},
        "canonical": print_region(query.region),
    }


def aggregates_view(query: Query, tallies: Mapping[Task, Tally]) -> dict[str, Any]:
    """The members of a query that asks for aggregates as a whole, and by partition."""
    asked = query.aggregates.of if query.aggregates is not None else ()
    whole = together(list(tallies.values())) if tallies else empty(asked)
    return {
        "query": query.public_id,
        "source": query.source,
        **_content(whole),
        "partitions": [{**task._asdict(), **_content(tally.content())} for task, tally in tallies.items()],
    }


def _content(content: Content) -> dict[str, Any]:
    of = {name: numbers._asdict() for name, numbers in content.of.items()}
    return {"count": content.members, "of": of}


def quarantined_view(id: str, quarantined: Quarantined) -> dict[str, Any]:
    return {
        "id": id,
        "etag": str(quarantined.version),
        "state": "quarantined",
        "stored": quarantined.body,
        "refusal": refusal_view(quarantined.refusal),
    }


def refusal_view(refusal: Refusal) -> dict[str, Any]:
    return {"field": refusal.field, "reason": refusal.reason.value, "detail": refusal.detail}


def active_from(outcome: Outcome) -> dict[str, Any]:
    return positions_view(outcome.command, outcome.active_from)


def positions_view(command: int, positions: Mapping[tuple[str, int], int]) -> dict[str, Any]:
    return {
        "command": command,
        "positions": [
            {"topic": topic, "partition": partition, "offset": offset}
            for (topic, partition), offset in sorted(positions.items())
        ],
    }
