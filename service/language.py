"""The language of clients: bodies of queries and sources, from bytes to the vocabulary of ``model`` and back.

Idea: one strict reader for each kind of body. It returns the thing or raises ``Refusal`` with the field, the
reason and the way out; nothing else, whatever the input. ``query_body`` and ``source_body`` write the whole
body, so that a body read back is equal; the condition itself is read by ``where`` and ``expression``, whose
functions are offered here as well.

Not for: what depends on the living queries and sources (``engine.catalog``), nor events (``wire``). Pure: the
time is an argument.
"""

from __future__ import annotations

import json
import keyword
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any, NoReturn, TypeVar

from service.expression import MAX_BYTES, MAX_DIGITS, print_region
from service.formats import JSON, check_format, format_body, parse_format
from service.literals import known_fields, shown
from service.log import topics
from service.model import (
    MOST_DISJUNCTS,
    MOST_VERTICES,
    Aggregates,
    AttributeType,
    Dedup,
    Initial,
    Kind,
    Late,
    Missing,
    Nulls,
    Query,
    Reason,
    Refusal,
    Region,
    Source,
)
from service.tenants import DEFAULT_TENANT, is_tenant, key_of
from service.where import USUAL_SHAPES, ShapeLimits, covers, parse_where, region_json

__all__ = [
    "Limits",
    "check_collection_name",
    "is_query_id",
    "load_json",
    "parse_duration",
    "parse_query",
    "parse_source",
    "parse_where",
    "patch_body",
    "print_region",
    "query_body",
    "region_json",
    "source_body",
]

MAX_ATTRIBUTES = 200
MAX_NAME = 64
MAX_PATH = 200
#: Ids of events that a stream remembers at the most.
MAX_EVENT_IDS = 10_000

#: Durations beyond this are mistakes; it keeps sums with timestamps exact in every client's JSON.
MAX_DURATION_MS = 100 * 365 * 86_400_000

#: The end of the year 9999: as far as dates are written.
MAX_INSTANT_MS = 253_402_300_799_999

_QUERY_ID = re.compile(r"[A-Za-z0-9._~:-]{1,200}")
_SOURCE_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_COLLECTION_NAME = re.compile(r"[A-Za-z0-9._~-]{1,100}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_KAFKAS = ("__consumer_offsets", "__transaction_state")
_DURATION = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_QUERY_FIELDS = dict.fromkeys(
    (
        *("id", "source", "where", "on", "initial", "keep", "for", "cooldown", "once"),
        *("select", "aggregates", "tags", "enabled", "expires_at"),
    )
)
_AGGREGATES_FIELDS = ("every", "of")
_SOURCE_FIELDS = dict.fromkeys(
    (
        *("attributes", "topic", "key", "ts", "paths", "missing", "nulls", "late"),
        *("stream_ttl", "stale_after", "format", "dedup"),
    )
)
_DEDUP_FIELDS = ("by", "last")

Choice = TypeVar("Choice", bound=StrEnum)

_ON = ["match", "enter", "leave"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one query may have: boxes of its region, selected attributes, attributes of its
    aggregates, tags, bytes of a text; of the shapes of one condition: see there."""

    disjuncts: int = 1000
    shapes: ShapeLimits = USUAL_SHAPES
    select: int = 100
    aggregates: int = 20
    tags: int = 100
    text: int = MAX_BYTES


STORED = Limits(disjuncts=MOST_DISJUNCTS, shapes=ShapeLimits(MOST_VERTICES, MOST_VERTICES))
"""For entries of the log. What was accepted stays registered: all workers, whatever their settings, are to
make the same of one log. The bound is for what nobody has judged."""


def load_json(raw: bytes) -> Any:
    """Reads one JSON value strictly: integers stay ``int``, so that ``inexact`` can be told.

    Raises Refusal: syntax (not JSON, not UTF-8, a key twice, half a surrogate pair, absurd depth); with
    the path, not_finite (``NaN``, ``Infinity``, ``1e999``), inexact (an integer longer than any float64).
    """
    try:
        value = json.loads(
            raw.decode(),
            object_pairs_hook=_object,
            parse_float=_finite,
            parse_int=_integer,
            parse_constant=_not_finite,
        )
        if b"\\u" in raw:
            json.dumps(value, ensure_ascii=False).encode()
    except _BadLiteral as bad:
        raise _placed(bad, raw) from None
    except UnicodeDecodeError as error:
        raise Refusal(Reason.SYNTAX, "", f"byte {error.start} is not UTF-8; send JSON in UTF-8") from None
    except UnicodeEncodeError:
        detail = "a \\u escape is half of a surrogate pair; write the whole sign"
        raise Refusal(Reason.SYNTAX, "", detail) from None
    except RecursionError:
        raise Refusal(Reason.SYNTAX, "", "is nested too deep; no body needs that") from None
    except json.JSONDecodeError as error:
        detail = f"is not JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        raise Refusal(Reason.SYNTAX, "", detail) from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise Refusal(Reason.SYNTAX, shown(twice), "stands twice in one object; keep the one that you mean")
    return result


class _BadLiteral(Refusal):
    """Of a number that is none, of a body that is read; whoever reads it does not know where."""


def _finite(literal: str) -> float:
    number = float(literal)
    return number if math.isfinite(number) else _not_finite(literal)


def _not_finite(literal: str) -> NoReturn:
    detail = f"{shown(literal)} is no finite number; leave the bound out for no limit"
    raise _BadLiteral(Reason.NOT_FINITE, "", detail)


def _integer(literal: str) -> int:
    if len(literal) > MAX_DIGITS + 1:
        detail = f"no float64 is such a long integer as {shown(literal)}; round it"
        raise _BadLiteral(Reason.INEXACT, "", detail)
    return int(literal)


def _placed(bad: _BadLiteral, raw: bytes) -> Refusal:
    """The refusal with the path of the literal: the body is read once more, with a mark in its place. Without
    a path where the rest cannot be read, or a key that comes twice hides the place."""
    mark = object()

    def read(convert: Callable[[str], Any], literal: str) -> Any:
        try:
            return convert(literal)
        except _BadLiteral:
            return mark

    try:
        value = json.loads(
            raw.decode(),
            parse_float=partial(read, _finite),
            parse_int=partial(read, _integer),
            parse_constant=partial(read, _not_finite),
        )
        path = _path_to(mark, value) or ""
    except (ValueError, RecursionError):
        path = ""
    return Refusal(bad.reason, path.removeprefix("."), bad.detail)


def _path_to(mark: object, value: Any) -> str | None:
    """Where an object first stands in a JSON value: ``.where.any[0].x.gt``."""
    if value is mark:
        return ""
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        parts = ((f".{shown(name)}", part) for name, part in value.items())
    elif isinstance(value, list):
        parts = ((f"[{i}]", part) for i, part in enumerate(value))
    return next((step + path for step, part in parts if (path := _path_to(mark, part)) is not None), None)


def parse_query(
    body: Any,
    sources: Mapping[str, Source],
    *,
    id: str | None,
    now_ms: int | None,
    limits: Limits,
    tenant: str = DEFAULT_TENANT,
) -> Query:
    """A query of a tenant from its whole body; what it leaves out has its default.

    ``id`` is the id in the path, or None where the body must have it. ``now_ms`` is the wall time, or None
    for a query that was judged before, whose expiry may have passed since. Raises Refusal: whatever
    ``parse_where`` does, unknown_field, missing_field, bad_id, unknown_source, bad_value, past.
    """
    _check_fields(
        body, _QUERY_FIELDS, required=("id", "source", "where") if id is None else ("source", "where")
    )
    key = _query_key(tenant, body.get("id", id), id)
    source = _source_of(body["source"], sources)
    region = parse_where(
        body["where"], source, limit=limits.disjuncts, max_bytes=limits.text, shapes=limits.shapes
    )
    on, initial, enabled, once, dwell, cooldown = _settings(body)
    if region.has_shapes and Kind.CROSS in on:
        detail = "cross needs a region of boxes; leave it out, or the polygons and circles"
        raise Refusal(Reason.BAD_VALUE, "on", detail)
    return Query(
        id=key,
        source=source.name,
        where=body["where"],
        region=region,
        on=on,
        initial=initial,
        select=_selected(body.get("select", []), source, limits.select),
        tags=_tags(body.get("tags", {}), limits.tags),
        enabled=enabled,
        keep=body.get("keep"),
        keep_region=kept_region(body.get("keep"), region, source, limits),
        dwell=dwell,
        cooldown=cooldown,
        once=once,
        aggregates=_aggregates(body.get("aggregates"), source, limits.aggregates),
        expires_at=_expiry(body.get("expires_at"), now_ms),
    )


def query_body(query: Query) -> dict[str, Any]:
    """The whole body, ready for JSON, in the order of the contract: ``where`` as it was given."""
    return {
        "id": query.public_id,
        "source": query.source,
        "where": query.where,
        "on": [kind.value for kind in Kind if kind in query.on],
        "initial": query.initial.value,
        "keep": query.keep,
        "for": query.dwell or None,
        "cooldown": query.cooldown or None,
        "once": query.once,
        "select": list(query.select),
        "aggregates": _aggregates_body(query.aggregates),
        "tags": dict(sorted(query.tags.items())),
        "enabled": query.enabled,
        "expires_at": query.expires_at,
    }


def _aggregates_body(aggregates: Aggregates | None) -> dict[str, Any] | None:
    return None if aggregates is None else {"every": aggregates.every, "of": list(aggregates.of)}


def patch_body(current: Mapping[str, Any], changes: Any) -> dict[str, Any]:
    """``current`` with the fields named in ``changes`` replaced whole, to be judged by ``parse_query``.

    ``id`` and ``source`` may be named, but stay. Raises Refusal: syntax, bad_id, bad_value.
    """
    if not isinstance(changes, dict):
        detail = f"the body must be a JSON object of the fields to change, not {shown(changes)}"
        raise Refusal(Reason.SYNTAX, "", detail)
    for field, reason in (("id", Reason.BAD_ID), ("source", Reason.BAD_VALUE)):
        if changes.get(field, current[field]) != current[field]:
            raise Refusal(reason, field, f"stays {current[field]!r}; leave it out, or register another query")
    return {**current, **changes}


def _check_fields(body: Any, fields: Mapping[str, None], *, required: Iterable[str]) -> None:
    if not isinstance(body, dict):
        raise Refusal(Reason.SYNTAX, "", f"the body must be a JSON object, not {shown(body)}")
    if not body.keys() <= fields.keys():
        field = next(field for field in body if field not in fields)
        raise Refusal(Reason.UNKNOWN_FIELD, shown(field), f"is no field here; there are {', '.join(fields)}")
    for field in required:
        if field not in body:
            raise Refusal(Reason.MISSING_FIELD, field, "must be given")


def _query_key(tenant: str, given: Any, wanted: str | None) -> str:
    if not isinstance(given, str) or not is_query_id(given):
        detail = "must be 1 to 200 of A-Z a-z 0-9 . _ ~ : - and neither . nor .."
        raise Refusal(Reason.BAD_ID, "id", detail)
    if wanted is not None and given != wanted:
        raise Refusal(
            Reason.BAD_ID, "id", f"the path names {shown(wanted)}; leave the field out or repeat that"
        )
    if tenant != DEFAULT_TENANT and not is_tenant(tenant):
        raise Refusal(Reason.BAD_ID, "id", f"is of {shown(tenant)}, which no tenant can be called")
    return key_of(tenant, given)


def _source_of(given: Any, sources: Mapping[str, Source]) -> Source:
    if not isinstance(given, str):
        raise Refusal(Reason.BAD_VALUE, "source", "must be the name of a source")
    source = sources.get(given)
    if source is None:
        raise Refusal(Reason.UNKNOWN_SOURCE, "source", f"there is no source {shown(given)}; create it first")
    return source


def kept_region(given: Any, region: Region, source: Source, limits: Limits) -> Region | None:
    """The region of ``keep`` beside that of ``where``. Raises Refusal: as ``parse_where``; keep_smaller."""
    if given is None:
        return None
    keep = parse_where(
        given, source, limit=limits.disjuncts, field="keep", max_bytes=limits.text, shapes=limits.shapes
    )
    if not covers(keep, region, limit=limits.disjuncts):
        detail = "each box of where must lie in one box of keep; widen keep, or leave it out"
        raise Refusal(Reason.KEEP_SMALLER, "keep", detail)
    return keep


def _optional_duration(body: Mapping[str, Any], field: str) -> int | None:
    return None if body.get(field) is None else parse_duration(body[field], field)


def _expiry(given: Any, now_ms: int | None) -> int | None:
    if given is None:
        return None
    expires_ms = _instant_ms(given, "expires_at")
    if now_ms is not None and expires_ms <= now_ms:
        raise Refusal(Reason.PAST, "expires_at", "has passed already; name a time to come, or null")
    if abs(expires_ms) > MAX_INSTANT_MS:
        raise Refusal(Reason.BAD_VALUE, "expires_at", "is beyond the year 9999; name an earlier time or null")
    return expires_ms


def expiry_of(stored: Mapping[str, Any]) -> int | None:
    """When a query expires that was stored and can no longer be read as a whole, ms; None if it says no
    such time."""
    try:
        return _expiry(stored.get("expires_at"), None)
    except Refusal:
        return None


_Settings = tuple[frozenset[Kind], Initial, bool, bool, int, int]
"""``on``, ``initial``, ``enabled``, ``once``, ``dwell``, ``cooldown`` of a query."""


def _settings(body: Mapping[str, Any]) -> _Settings:
    get = body.get
    on = get("on", _ON)
    if not isinstance(on, list) or not on:
        raise Refusal(Reason.BAD_VALUE, "on", f"must be a list of at least one of {', '.join(Kind)}")
    given = (tuple(on), get("initial", Initial.EMIT), get("enabled", True), get("once", False))
    waits = get("for"), get("cooldown")
    try:
        return _settings_of(*given, *waits)
    except TypeError:  # what has no hash is none of the choices
        return _settings_of.__wrapped__(*given, *waits)


@lru_cache(maxsize=1_024, typed=True)
def _settings_of(
    on: tuple[Any, ...], initial: Any, enabled: Any, once: Any, dwell: Any, cooldown: Any
) -> _Settings:
    """Of equal ones one object: a million queries have a handful of them. ``typed``: 1 is not true."""
    return (
        frozenset([_choice(Kind, kind, f"on[{i}]") for i, kind in enumerate(on)]),
        _choice(Initial, initial, "initial"),
        _flag(enabled, "enabled"),
        _flag(once, "once"),
        0 if dwell is None else parse_duration(dwell, "for"),
        0 if cooldown is None else parse_duration(cooldown, "cooldown"),
    )


def _selected(given: Any, source: Source, limit: int, field: str = "select") -> tuple[str, ...]:
    if not isinstance(given, list):
        raise Refusal(Reason.BAD_VALUE, field, "must be a list of attributes")
    if len(given) > limit:
        raise Refusal(Reason.LIMIT, field, f"names more than {limit} attributes, which is the limit")
    for i, name in enumerate(given):
        if not isinstance(name, str):
            raise Refusal(Reason.BAD_VALUE, f"{field}[{i}]", "must be the name of an attribute")
        if name not in source.attributes:
            detail = f"source {source.name} has no attribute {shown(name)}; leave it out"
            raise Refusal(Reason.UNKNOWN_ATTRIBUTE, f"{field}[{i}]", detail)
    return tuple(dict.fromkeys(given))


def _aggregates(given: Any, source: Source, limit: int) -> Aggregates | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        detail = 'must be an object such as {"every": "1s", "of": ["speed"]}, or null'
        raise Refusal(Reason.BAD_VALUE, "aggregates", detail)
    known_fields(given, _AGGREGATES_FIELDS, "aggregates")
    of = _selected(given.get("of", []), source, limit, "aggregates.of")
    for i, name in enumerate(given.get("of", [])):
        if source.attributes[name] is not AttributeType.NUMBER:
            detail = f"{name} is a category, of which there is no sum; leave it out"
            raise Refusal(Reason.NOT_A_NUMBER, f"aggregates.of[{i}]", detail)
    return Aggregates(parse_duration(given.get("every", 1_000), "aggregates.every"), of)


def _tags(given: Any, limit: int) -> dict[str, str]:
    if not isinstance(given, dict):
        raise Refusal(Reason.BAD_VALUE, "tags", "must be an object of texts")
    if len(given) > limit:
        raise Refusal(Reason.LIMIT, "tags", f"has more than {limit} tags, which is the limit")
    for name, text in given.items():
        if not isinstance(text, str):
            raise Refusal(Reason.BAD_VALUE, f"tags.{shown(name)}", "must be a text; put it in quotes")
    return dict(given)


def _flag(given: Any, field: str) -> bool:
    if not isinstance(given, bool):
        raise Refusal(Reason.BAD_VALUE, field, "must be true or false")
    return given


def _choice(choices: type[Choice], given: Any, field: str) -> Choice:
    try:
        if isinstance(given, str):
            return choices(given)
    except ValueError:
        pass
    raise Refusal(Reason.BAD_VALUE, field, f"must be one of {', '.join(choices)}")


def parse_duration(value: Any, field: str) -> int:
    """A duration in ms, from whole ms or a text such as "250ms", "30s", "5m", "2h", "1d"; more than 0 and at
    most a hundred years. Raises Refusal: bad_value."""
    if isinstance(value, int) and not isinstance(value, bool):
        duration_ms = value
    elif isinstance(value, str) and (parts := _DURATION.fullmatch(value)):
        duration_ms = int(parts[1]) * _UNIT_MS[parts[2]]
    else:
        detail = 'must be whole milliseconds or a text such as "250ms", "30s", "5m", "2h", "1d"'
        raise Refusal(Reason.BAD_VALUE, field, detail)
    if not 0 < duration_ms <= MAX_DURATION_MS:
        raise Refusal(Reason.BAD_VALUE, field, "must be more than 0 and at most 100 years")
    return duration_ms


def _instant_ms(given: Any, field: str) -> int:
    """ms since 1970, from whole ms or ISO 8601 with a zone (parts of a ms are cut)."""
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    try:
        instant = datetime.fromisoformat(given)
    except (TypeError, ValueError):
        detail = "must be whole milliseconds since 1970 or ISO 8601 such as 2030-01-31T12:00:00Z"
        raise Refusal(Reason.BAD_VALUE, field, detail) from None
    if instant.tzinfo is None:
        raise Refusal(Reason.BAD_VALUE, field, "names no time zone; add Z or an offset such as +02:00")
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def parse_source(name: str, body: Any) -> Source:
    """A source from its name and whole body; what the body leaves out has its default.

    Every field of an event is read once: ``key``, ``ts``, ``dedup.by`` and each attribute have paths of their
    own, none inside another, so an attribute named ``ts`` needs another path or another time field. Raises
    Refusal: bad_id (the name), unknown_field, missing_field, unknown_attribute, limit, bad_value, syntax.
    """
    if not isinstance(name, str) or not _SOURCE_NAME.fullmatch(name) or name in (".", ".."):
        raise Refusal(Reason.BAD_ID, "name", "must be 1 to 100 of A-Z a-z 0-9 . _ - and neither . nor ..")
    _check_fields(body, _SOURCE_FIELDS, required=("attributes",))
    source = Source(
        name=name,
        attributes=_attributes(body["attributes"]),
        topic=_topic(body.get("topic"), name),
        key=_path(body.get("key", "stream_id"), "key"),
        ts=_path(body.get("ts", "ts"), "ts"),
        paths=_paths(body.get("paths", {}), body["attributes"]),
        missing=_choice(Missing, body.get("missing", Missing.ABSENT), "missing"),
        nulls=_choice(Nulls, body.get("nulls", Nulls.REJECT), "nulls"),
        late=_choice(Late, body.get("late", Late.NO_BORDER), "late"),
        stream_ttl=_optional_duration(body, "stream_ttl"),
        stale_after=_optional_duration(body, "stale_after"),
        format=parse_format(body.get("format", JSON)),
        dedup=_dedup(body.get("dedup")),
    )
    _check_paths_differ(source)
    check_format(source)
    return source


def is_query_id(text: str) -> bool:
    return _QUERY_ID.fullmatch(text) is not None and text not in (".", "..")


def check_collection_name(name: str) -> None:
    """Raises Refusal: bad_id."""
    if not _COLLECTION_NAME.fullmatch(name) or name in (".", ".."):
        detail = "must be 1 to 100 of A-Z a-z 0-9 . _ ~ - and neither . nor .."
        raise Refusal(Reason.BAD_ID, "name", detail)


def source_body(source: Source) -> dict[str, Any]:
    """The whole body, ready for JSON, in the order of the contract; attributes in the order of columns. The
    format stands there if it is not JSON, and ``dedup`` if there is one, so that entries of older versions
    are what they were."""
    body: dict[str, Any] = {
        "attributes": {name: kind.value for name, kind in source.attributes.items()},
        "topic": source.topic,
        "key": source.key,
        "ts": source.ts,
        "paths": dict(source.paths),
        "missing": source.missing.value,
        "nulls": source.nulls.value,
        "late": source.late.value,
        "stream_ttl": source.stream_ttl,
        "stale_after": source.stale_after,
    }
    if source.format is not None:
        body["format"] = format_body(source.format)
    if source.dedup is not None:
        body["dedup"] = dedup_body(source.dedup)
    return body


def dedup_body(dedup: Dedup | None) -> dict[str, Any] | None:
    """Ready for JSON."""
    return None if dedup is None else dedup._asdict()


def _attributes(given: Any) -> dict[str, AttributeType]:
    if not isinstance(given, dict) or not given:
        detail = 'must be an object of at least one attribute and its type, such as {"x": "number"}'
        raise Refusal(Reason.BAD_VALUE, "attributes", detail)
    if len(given) > MAX_ATTRIBUTES:
        raise Refusal(Reason.LIMIT, "attributes", f"has more than {MAX_ATTRIBUTES}, which is the limit")
    for name in given:
        # An expression sees a name as Python does, in normal form; a name that is not would never be found.
        named = (
            name.isidentifier() and not keyword.iskeyword(name) and unicodedata.is_normalized("NFKC", name)
        )
        if not named or len(name) > MAX_NAME:
            detail = f"must be a Python identifier of at most {MAX_NAME} characters and no keyword; rename it"
            raise Refusal(
                Reason.BAD_VALUE, f"attributes.{shown(name)}", f"{detail} (paths can name the field)"
            )
    return {name: _choice(AttributeType, kind, f"attributes.{name}") for name, kind in given.items()}


def _topic(given: Any, source: str) -> str:
    if given is None:
        return topics.events_topic(source)
    if not isinstance(given, str) or not _TOPIC.fullmatch(given) or given in (".", ".."):
        detail = "must be 1 to 249 of A-Z a-z 0-9 . _ - and neither . nor .., or null"
        raise Refusal(Reason.BAD_VALUE, "topic", detail)
    if given in _KAFKAS:
        raise Refusal(Reason.BAD_VALUE, "topic", f"{given} is Kafka's own; name another")
    if given in (*topics.OUTPUTS, topics.COMMANDS, topics.STATE):
        raise Refusal(Reason.BAD_VALUE, "topic", f"{given} is written by the service itself; name another")
    return given


def _path(given: Any, field: str) -> str:
    if not isinstance(given, str) or not all(given.split(".")) or len(given) > MAX_PATH:
        detail = f"must name a field, or a nested one as outer.inner, in at most {MAX_PATH} characters"
        raise Refusal(Reason.BAD_VALUE, field, detail)
    return given


def _paths(given: Any, attributes: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(given, dict):
        raise Refusal(Reason.BAD_VALUE, "paths", "must be an object of attributes and where to read them")
    for name in given:
        if name not in attributes:
            detail = "is no attribute of the source; leave it out or declare it"
            raise Refusal(Reason.UNKNOWN_ATTRIBUTE, f"paths.{shown(name)}", detail)
    return {name: _path(path, f"paths.{name}") for name, path in given.items()}


def _dedup(given: Any) -> Dedup | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        detail = 'must be null, or an object such as {"by": "event_id", "last": 100}'
        raise Refusal(Reason.BAD_VALUE, "dedup", detail)
    known_fields(given, _DEDUP_FIELDS, "dedup")
    if "by" not in given:
        raise Refusal(Reason.MISSING_FIELD, "dedup.by", "is needed: the field that has the id of an event")
    dedup = Dedup(_path(given["by"], "dedup.by"))
    last = given.get("last", dedup.last)
    if isinstance(last, bool) or not isinstance(last, int) or not 1 <= last <= MAX_EVENT_IDS:
        detail = f"must be a whole number from 1 to {MAX_EVENT_IDS}: how many ids a stream remembers"
        raise Refusal(Reason.BAD_VALUE, "dedup.last", detail)
    return dedup._replace(last=last)


def _check_paths_differ(source: Source) -> None:
    fields = {"key": source.key, "ts": source.ts}
    if source.dedup is not None:
        fields["dedup.by"] = source.dedup.by
    fields.update((f"attributes.{name}", source.paths.get(name, name)) for name in source.attributes)
    readers: dict[str, str] = {}
    inner: dict[str, str] = {}
    for field, path in fields.items():
        steps = path.split(".")
        outer = [".".join(steps[:n]) for n in range(1, len(steps))]
        reader = inner.get(path) or next(
            (readers[place] for place in (path, *outer) if place in readers), None
        )
        if reader is not None:
            detail = (
                f"the event's {shown(path)} is read, as a whole or in part, as {reader}; name another path"
            )
            raise Refusal(Reason.BAD_VALUE, field, detail)
        readers[path] = field
        inner.update(dict.fromkeys(outer, field))
