"""The public vocabulary: sources, queries, regions and refusals.

A query's ``where`` is a *region*: a union of conjuncts. Inside the service a number is bounded by one
convention only, the half-open float64 interval ``[lo, hi)``; ``language`` maps every comparison onto it
with ``nextafter``, so no kernel ever asks whether an end is open or closed. A category is bounded by a
set of texts, wanted or unwanted; the engine turns texts into points of a dictionary-coded axis. Two numbers
together are bounded by shapes (``geometry``).

A missing attribute has the value ``-inf``: it lies in no interval whose lower end is finite, and every
bounded interval has one. "No constraint" is the absence of the attribute from the conjunct.

Pure: no I/O, no clock. Not for: parsing (``language``) or geometry over many rows (``index``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import force_setattr

from service.geometry import Rectangle, Shape, Shapes
from service.tenants import id_of, tenant_of

#: Smallest finite float64: the lower end of a one-sided bound, so that a missing value (-inf) is outside.
LOWEST = -1.7976931348623157e308

MISSING = float("-inf")

#: Boxes that a query may come to at the most, whatever the settings ask of new ones.
MOST_DISJUNCTS = 1_000_000
MOST_VERTICES = 10_000_000


class AttributeType(StrEnum):
    NUMBER = "number"
    CATEGORY = "category"


class Kind(StrEnum):
    """What a query asks to be told; the members of ``on``."""

    MATCH = "match"
    ENTER = "enter"
    LEAVE = "leave"
    CROSS = "cross"


class Initial(StrEnum):
    EMIT = "emit"
    IGNORE = "ignore"


class Reason(StrEnum):
    """Why something was refused: the closed vocabulary of problem bodies and dead letters."""

    # queries and other requests
    UNKNOWN_ATTRIBUTE = "unknown_attribute"
    UNKNOWN_FIELD = "unknown_field"
    EMPTY_RANGE = "empty_range"
    NOT_FINITE = "not_finite"
    INEXACT = "inexact"
    NOT_A_NUMBER = "not_a_number"
    NOT_A_CATEGORY = "not_a_category"
    BAD_OPERATOR = "bad_operator"
    SYNTAX = "syntax"
    LIMIT = "limit"
    KEEP_SMALLER = "keep_smaller"
    PAST = "past"
    BAD_ID = "bad_id"
    MISSING_FIELD = "missing_field"
    BAD_VALUE = "bad_value"
    UNKNOWN_SOURCE = "unknown_source"
    UNKNOWN_ID = "unknown_id"
    EXISTS = "exists"
    CHANGED = "changed"  # If-Match names another version
    IN_USE = "in_use"  # an attribute that queries still name
    QUARANTINED = "quarantined"  # a query that is there, but means nothing until it is put anew
    QUOTA = "quota"  # more of a thing than there may be, though there is nothing wrong with this one
    # events (not_finite, inexact, not_a_number, not_a_category and limit are shared)
    MALFORMED = "malformed"
    NO_STREAM_ID = "no_stream_id"
    BAD_TS = "bad_ts"
    BAD_EVENT_ID = "bad_event_id"
    LATE = "late"
    DUPLICATE = "duplicate"
    TOO_LARGE = "too_large"
    UNKNOWN_SCHEMA = "unknown_schema"  # the registry has none under that id
    BAD_SCHEMA = "bad_schema"  # it has one by which events cannot be read


class Refusal(Exception):
    """The sender's mistake: names the field, the reason class and, in ``detail``, the way out.

    ``field`` is a dotted path into the body (``where.any[0].lat.gte``), or "" for the body as a whole.
    Nothing has changed when this is raised.
    """

    def __init__(self, reason: Reason, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail} ({reason})" if field else f"{detail} ({reason})")
        self.reason = reason
        self.field = field
        self.detail = detail

    def kept(self) -> Refusal:
        """The same to be kept for a while. One that was raised holds the calls that it came through, and with
        them all that these held: most often whoever keeps it, too, so that nothing of it goes by itself."""
        return Refusal(self.reason, self.field, self.detail)


class Interval(NamedTuple):
    """A half-open float64 interval ``[lo, hi)``; never empty, ``lo`` finite, ``hi`` may be ``inf``."""

    lo: float
    hi: float


class Texts(NamedTuple):
    """A category constraint: one of ``values``, or, ``negated``, present and none of them."""

    values: frozenset[str]
    negated: bool


IN = "in"
"""Under this name a conjunct has its shapes: a word that no attribute can be called by."""

Bound = Interval | Texts | Shapes

Conjunct = Mapping[str, Bound]
"""One box: every named attribute is within its bound. An attribute that is not named is free. With shapes
(``IN``) it is what lies in the box and in all of them."""


def shapes_of(conjunct: Conjunct) -> Shapes | None:
    shapes = conjunct.get(IN)
    return shapes if isinstance(shapes, Shapes) else None


def framed(conjunct: Conjunct, frames: Iterable[tuple[Shape, Rectangle]]) -> Conjunct | None:
    """The box of a conjunct, without its shapes, as far as it lies in these rectangles over the attributes of
    each shape; None if it does not."""
    box = {name: bound for name, bound in conjunct.items() if name != IN}
    for shape, rectangle in frames:
        for name, (lo, hi) in zip((shape.x, shape.y), rectangle, strict=True):
            known = box.get(name)
            if isinstance(known, Interval):
                lo, hi = max(lo, known.lo), min(hi, known.hi)
            if not lo < hi:
                return None
            box[name] = Interval(lo, hi)
    return box


class Region(msgspec.Struct, frozen=True):
    """A disjunctive normal form: inside means inside at least one conjunct.

    Canonical from its construction: conjuncts sorted, duplicates removed, attributes in order of name. So
    equality is that of the sets of conjuncts; boxes that overlap or touch stay apart, since ``keep`` holds
    box by box. Raises ValueError without a conjunct. O(n log n).
    """

    conjuncts: tuple[Conjunct, ...]

    def __post_init__(self) -> None:
        if not self.conjuncts:
            raise ValueError("a region has at least one conjunct")
        if len(self.conjuncts) == 1:
            (conjunct,) = self.conjuncts
            if sorted(conjunct) != [*conjunct]:
                force_setattr(self, "conjuncts", (dict(sorted(conjunct.items())),))
            return
        distinct = {_order(conjunct): conjunct for conjunct in self.conjuncts}
        canonical = tuple(dict(sorted(distinct[key].items())) for key in sorted(distinct))
        force_setattr(self, "conjuncts", canonical)

    def __contains__(self, values: Mapping[str, float | str]) -> bool:
        """Whether a mapping of present attributes is inside: the slow twin of every index. O(bounds)."""
        return any(
            all(
                _holds_all(bound, values) if isinstance(bound, Shapes) else _holds(bound, values.get(name))
                for name, bound in conjunct.items()
            )
            for conjunct in self.conjuncts
        )

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that it bounds."""
        return frozenset(
            named
            for conjunct in self.conjuncts
            for name, bound in conjunct.items()
            for named in (bound.attributes if isinstance(bound, Shapes) else (name,))
        )

    @property
    def has_shapes(self) -> bool:
        for conjunct in self.conjuncts:  # noqa: SIM110 - asked several times of each of a million
            if IN in conjunct:
                return True
        return False


def _order(conjunct: Conjunct) -> tuple[tuple[str, tuple[float, float], tuple[Any, ...]], ...]:
    """A sort key that tells any two conjuncts apart. The ends of a category's are those of no interval."""
    return tuple((name, *_order_of(bound)) for name, bound in sorted(conjunct.items()))


def _order_of(bound: Bound) -> tuple[tuple[float, float], tuple[Any, ...]]:
    if isinstance(bound, Interval):
        return bound, ()
    if isinstance(bound, Shapes):
        return (math.inf, math.inf), bound.key
    return (math.inf, float(bound.negated)), tuple(sorted(bound.values))


def _holds_all(bound: Shapes, values: Mapping[str, float | str]) -> bool:
    for shape in bound.shapes:
        x, y = values.get(shape.x), values.get(shape.y)
        if not isinstance(x, float | int) or not isinstance(y, float | int) or not shape.holds(x, y):
            return False
    return True


def _holds(bound: Interval | Texts, value: float | str | None) -> bool:
    if value is None:
        return False
    if isinstance(bound, Interval):
        return not isinstance(value, str) and bound.lo <= value < bound.hi
    return isinstance(value, str) and (value in bound.values) != bound.negated


class Missing(StrEnum):
    ABSENT = "absent"
    CARRY = "carry"


class Nulls(StrEnum):
    REJECT = "reject"
    ABSENT = "absent"


class Late(StrEnum):
    NO_BORDER = "no_border"
    PROCESS = "process"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Avro:
    """Events in Avro's binary encoding, one a message: written with ``schema``, its JSON as it was given; or,
    None, with the schema whose id is in front of them, as schema registries frame messages."""

    schema: Any = None


@dataclass(frozen=True, slots=True)
class Protobuf:
    """Events as Protobuf messages of the type ``message``. ``descriptors`` is a FileDescriptorSet in base64;
    ``registry``: in front of them are what schema registries put there."""

    descriptors: str
    message: str
    registry: bool = False


class Dedup(NamedTuple):
    """Which events are copies: those whose id, found at the path ``by``, is one of the ``last`` ids that were
    accepted of their stream."""

    by: str
    last: int = 100


@dataclass(frozen=True, slots=True)
class Source:
    """A named kind of event. ``attributes`` keeps its order: the columns of every point of the source.
    ``format`` is how its messages are written, None for JSON; without ``dedup`` no event is a copy."""

    name: str
    attributes: Mapping[str, AttributeType]
    topic: str
    key: str = "stream_id"
    ts: str = "ts"
    paths: Mapping[str, str] = field(default_factory=dict)
    missing: Missing = Missing.ABSENT
    nulls: Nulls = Nulls.REJECT
    late: Late = Late.NO_BORDER
    stream_ttl: int | None = None
    stale_after: int | None = None
    format: Avro | Protobuf | None = None
    dedup: Dedup | None = None


class Aggregates(NamedTuple):
    """What a query asks to be told of its members as a whole: how many there are, and sums and extremes of
    the attributes ``of``; not more often than ``every`` ms."""

    every: int
    of: tuple[str, ...]


class Query(msgspec.Struct, frozen=True):
    """A registered query. ``id`` is its key (``tenants``), ``public_id`` what its tenant calls it. ``where``
    is kept as it was given (text or JSON); ``region`` is its meaning; so are ``keep`` and ``keep_region``.
    ``dwell`` (the body's ``for``) and ``cooldown`` are ms, 0 for none; ``expires_at`` is wall time in ms
    since 1970. (Made by the million: this takes a fifth of a dataclass's time.)
    """

    id: str
    source: str
    where: Any
    region: Region
    on: frozenset[Kind] = frozenset((Kind.MATCH, Kind.ENTER, Kind.LEAVE))
    initial: Initial = Initial.EMIT
    select: tuple[str, ...] = ()
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)
    enabled: bool = True
    keep: Any = None
    keep_region: Region | None = None
    dwell: int = 0
    cooldown: int = 0
    once: bool = False
    aggregates: Aggregates | None = None
    expires_at: int | None = None

    @property
    def tenant(self) -> str:
        return tenant_of(self.id)

    @property
    def public_id(self) -> str:
        return id_of(self.id)

    @property
    def disjuncts(self) -> int:
        """How many of them ``where`` and ``keep`` come to."""
        kept = self.keep_region
        return len(self.region.conjuncts) + (len(kept.conjuncts) if kept is not None else 0)

    @property
    def stores(self) -> bool:
        """Whether membership is more than where the stream is now: it has to be remembered."""
        return self.keep_region is not None or self.dwell > 0 or self.cooldown > 0 or self.once
