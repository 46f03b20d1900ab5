"""Files of collections, row by row as query bodies: GeoJSON, or a table of thresholds in CSV or Parquet.

A GeoJSON feature is a query: its polygon, or its point with a radius in a property, is the region; a feature
without geometry may have a ``bbox``. A row of a table is a query: a column ``ATTRIBUTE.OP`` has bounds
(``OP`` as in the JSON form; ``in`` takes values with ``|`` between them), a column named like an attribute
what it must equal, ``where`` a whole condition, a column named like a field of a query that field (words with
blanks between them); ``lon``, ``lat`` and ``radius_m`` together are a circle. Empty cells say nothing.

A feature or row that makes no query is told with its place, and the others are read on. What is read is never
in memory as a whole but for the bytes of the file. Nor is a file taken apart that cannot be meant: there are
limits on the members, on the bytes of each, on depth, and on what a file comes to that is packed
(``parquet``), and all hold before what is beyond them is made.

Not for: taking Parquet apart (``parquet_process``), judging the bodies (``language``) or what changes
(``engine.collections``). Pure.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numba import types

from service.elements import Spans, Text, elements
from service.engine.collections import Member
from service.expression import Op
from service.index.kernel import kernel, reads, writes
from service.language import load_json
from service.literals import shown
from service.model import IN, AttributeType, Reason, Refusal, Source
from service.shapes import CIRCLE, POLYGON

if TYPE_CHECKING:
    from service.parquet import Table

GEOJSON, CSV, PARQUET = "geojson", "csv", "parquet"

#: Columns of a table that are fields of the query.
_FIELDS = frozenset(
    {"where", "keep", "initial", "for", "cooldown", "expires_at", "on", "select", "aggregates"}
)
_WORDS = ("on", "select")
_TIMES = ("for", "cooldown", "expires_at")
_FLAGS = ("once", "enabled")
_TRUTHS = {"true": True, "false": False, True: True, False: False}


@dataclass(frozen=True, slots=True)
class Reading:
    """How a file is read. ``lon`` and ``lat`` are attributes of the source; ``id`` (none: a feature's own id,
    a column ``id``), ``radius`` and ``tags`` are properties or columns; ``defaults`` are fields of
    queries.

    ``max_bytes`` is for one member, ``max_members`` for the file (and the name of that setting),
    ``max_unpacked_bytes`` for what is packed in it."""

    source: Source
    lon: str = "lon"
    lat: str = "lat"
    id: str | None = None
    radius: str = "radius_m"
    tags: Sequence[str] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    max_bytes: int = 1_000_000
    max_members: tuple[int, str] = (1_000_000, "max_queries")
    max_unpacked_bytes: int = 512 << 20


def members(kind: str, raw: bytes, reading: Reading) -> Iterator[Member]:
    """The members of a file in GeoJSON or CSV. Raises Refusal where the file as a whole cannot be read:
    syntax, bad_value, missing_field, unknown_attribute, quota, too_large; of CSV the last two as it is read
    on."""
    return {GEOJSON: _geojson, CSV: _csv}[kind](raw, reading)


def _check_count(count: int, reading: Reading) -> None:
    most, setting = reading.max_members
    if count > most:
        detail = f"has {count} members or more; {most} queries are all that {setting} allows"
        raise Refusal(Reason.QUOTA, "", f"{detail}: leave some out, or raise it")


def _too_long(reading: Reading) -> Refusal:
    return Refusal(Reason.TOO_LARGE, "", f"is longer than the {reading.max_bytes} bytes of max_message_bytes")


_PIECE_BYTES = 1 << 20

# A cell may be as long as its row, of which the size has a limit.
csv.field_size_limit(1 << 30)


class _Features(msgspec.Struct):
    type: str
    features: msgspec.Raw


def _geojson(raw: bytes, reading: Reading) -> Iterator[Member]:
    raw = raw.removeprefix(codecs.BOM_UTF8)
    readable = _readable(raw)
    try:
        collection = msgspec.json.decode(readable, type=_Features)
    except msgspec.DecodeError as wrong:  # not JSON, or of another shape
        detail = f"is no GeoJSON FeatureCollection: {wrong}"
        raise Refusal(Reason.SYNTAX, "", detail) from None
    except UnicodeDecodeError:
        raise Refusal(Reason.SYNTAX, "", "is not UTF-8; send JSON in UTF-8") from None
    spans = _spans(collection.features, readable, reading)
    load_json(_without(spans, raw, reading))  # a key twice, of which one would be taken silently
    if collection.type != "FeatureCollection":
        detail = f'must be "FeatureCollection", not {shown(collection.type)}'
        raise Refusal(Reason.BAD_VALUE, "type", detail)
    return (
        _read(f"features[{i}]", raw[begin:end], lambda text: _loaded(text, reading), reading)
        for i, (begin, end) in enumerate(spans)
    )


#: Features are eight levels deep, their properties as deep as they are; readers of JSON recurse at each.
_MOST_DEPTH = 200

_NAN, _INFINITY = (np.frombuffer(word, np.uint8) for word in (b"NaN", b"Infinity"))


def _readable(raw: bytes) -> bytes | bytearray:
    """A file with plain numbers of as many bytes in place of NaN and Infinity, which are no JSON: so it comes
    apart into its features, of which each is told what is wrong with it. Raises Refusal: syntax (depth)."""
    plain = bytearray(raw if b"NaN" in raw or b"Infinity" in raw else b"")
    beyond = _outline(np.frombuffer(raw, np.uint8), np.frombuffer(plain, np.uint8), _MOST_DEPTH)
    if beyond >= 0:
        detail = f"is nested deeper than {_MOST_DEPTH} at byte {beyond}; make it flat, or a text"
        raise Refusal(Reason.SYNTAX, "", detail)
    return plain or raw


@kernel(types.int64(reads(types.uint8, 1), writes(types.uint8, 1), types.int64))
def _outline(text: Text, plain: Text, most: int) -> int:
    """Where what may be JSON is first nested deeper than ``most``, or -1. Makes the numbers plain that are no
    JSON, in a copy; that is empty where there are none."""
    depth = i = 0
    in_string = False
    while i < len(text):
        sign = text[i]
        if sign == ord('"'):
            in_string = not in_string
        elif in_string:
            i += sign == ord("\\")
        elif sign == ord("[") or sign == ord("{"):
            depth += 1
            if depth > most:
                return i
        elif sign == ord("]") or sign == ord("}"):
            depth -= 1
        elif len(plain) and (sign == ord("N") or sign == ord("I")):
            word = _NAN if sign == ord("N") else _INFINITY
            same = 0
            while same < len(word) and i + same < len(text) and text[i + same] == word[same]:
                same += 1
            if same == len(word):
                plain[i : i + same] = ord("0")
                plain[i + 1] = ord(".")
                i += same - 1
        i += 1
    return -1


def _spans(features: msgspec.Raw, raw: bytes | bytearray, reading: Reading) -> Spans:
    """Where in a file its features begin and end. Raises Refusal: syntax, quota."""
    text = np.frombuffer(features, np.uint8)
    if text[0] != ord("["):
        detail = "is no GeoJSON FeatureCollection: `features` must be an array"
        raise Refusal(Reason.SYNTAX, "features", detail)
    spans = np.empty((min(reading.max_members[0], len(text) // 2), 2), np.int64)
    count = elements(text, spans)
    _check_count(count, reading)
    return spans[:count] + (text.ctypes.data - np.frombuffer(raw, np.uint8).ctypes.data)


def _without(features: Spans, raw: bytes, reading: Reading) -> bytes:
    """A file but for its features. Raises Refusal: too_large."""
    rest = raw[: features[0, 0]] + raw[features[-1, 1] :] if len(features) else raw
    if len(rest) > reading.max_bytes:
        raise Refusal(Reason.TOO_LARGE, "", f"without its features it {_too_long(reading).detail}")
    return rest


Made = tuple[str | None, dict[str, Any] | Refusal]


def _read(place: str, row: Any, made: Callable[[Any], Made], reading: Reading) -> Member:
    if isinstance(row, bytes) and len(row) > reading.max_bytes:
        return Member(place, None, _too_long(reading))
    try:
        return Member(place, *made(row))
    except Refusal as refusal:
        return Member(place, None, refusal)


def _loaded(text: bytes, reading: Reading) -> Made:
    """A feature; of one whose numbers cannot be read the id, if nothing else is wrong."""
    try:
        feature = load_json(text)
    except Refusal as refusal:
        if refusal.reason is not Reason.NOT_FINITE:
            raise
        return _feature(load_json(bytes(_readable(text))), reading)[0], refusal
    return _feature(feature, reading)


def _feature(feature: Any, reading: Reading) -> Made:
    if not isinstance(feature, dict) or feature.get("type") != "Feature":
        raise Refusal(Reason.BAD_VALUE, "type", 'must be an object of the type "Feature"')
    properties = feature.get("properties") or {}
    if not isinstance(properties, dict):
        raise Refusal(Reason.BAD_VALUE, "properties", "must be an object or null")
    given = feature.get("id") if reading.id is None else properties.get(reading.id)
    id = _id(given, "id" if reading.id is None else f"properties.{reading.id}")
    tags = {
        name: _tag(properties[name], f"properties.{name}")
        for name in reading.tags
        if properties.get(name) not in (None, "")
    }
    try:
        disjuncts = _disjuncts(feature.get("geometry"), feature.get("bbox"), properties, reading)
    except Refusal as refusal:
        return id, refusal
    return id, {**reading.defaults, "where": {"any": disjuncts}, "tags": tags}


def _tag(value: Any, field: str) -> str:
    """The text of a tag: of what is no text, its JSON. Raises Refusal: not_finite."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        detail = "has a number that JSON has not; leave it empty, or make it a text"
        raise Refusal(Reason.NOT_FINITE, field, detail) from None


def _id(given: Any, place: str) -> str:
    if given is None or given == "":
        raise Refusal(Reason.MISSING_FIELD, place, "must be given: it is what a member is known by")
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise Refusal(Reason.BAD_ID, place, "must be a text or a whole number")
    return str(given)


def _disjuncts(
    geometry: Any, bbox: Any, properties: Mapping[str, Any], reading: Reading
) -> list[dict[str, Any]]:
    over = {"lon": reading.lon, "lat": reading.lat}
    if geometry is None and bbox is not None:
        if not isinstance(bbox, list) or len(bbox) != 4:
            raise Refusal(Reason.BAD_VALUE, "bbox", "must be west, south, east, north")
        west, south, east, north = bbox
        numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (west, east))
        across = [(west, 180), (-180, east)] if numbers and 180 >= west > east >= -180 else [(west, east)]
        return [
            {reading.lon: {"gte": lo, "lte": hi}, reading.lat: {"gte": south, "lte": north}}
            for lo, hi in across
        ]
    kind = geometry.get("type") if isinstance(geometry, dict) else None
    if kind in ("Polygon", "MultiPolygon"):
        return [{IN: {POLYGON: geometry, **over}}]
    at = geometry.get("coordinates") if kind == "Point" else None
    if not isinstance(at, list) or len(at) < 2:
        detail = "must be a Polygon, a MultiPolygon or a Point of two numbers, or null beside a bbox"
        raise Refusal(Reason.BAD_VALUE, "geometry", detail)
    radius_m = properties.get(reading.radius)
    if radius_m is None:
        place = f"properties.{reading.radius}"
        raise Refusal(Reason.MISSING_FIELD, place, "must be given: a point is the centre of a circle")
    return [{IN: {CIRCLE: {"lon": at[0], "lat": at[1], "radius_m": radius_m}, **over}}]


def _csv(raw: bytes, reading: Reading) -> Iterator[Member]:
    _check_utf8(raw)
    length = 0  # of the row so far

    def lines() -> Iterator[str]:
        nonlocal length
        text = io.TextIOWrapper(io.BytesIO(raw), "utf-8-sig", newline="")
        while line := text.readline(reading.max_bytes + 1):
            length += len(line)
            if length > reading.max_bytes:
                raise _too_long(reading)
            yield line

    # Strictly: a quote that is never closed would make one cell of all that follows, and what is not in the
    # file any more is deleted.
    rows = csv.reader(lines(), strict=True)
    try:
        header = next(rows, [])
    except csv.Error as error:
        raise Refusal(Reason.SYNTAX, "", f"line 1: {_unreadable(error)}") from None
    table = _Table(header, reading)

    def members() -> Iterator[Member]:
        nonlocal length
        begin = rows.line_num + 1  # of a row, which may go over several lines
        length = count = 0
        try:
            for row in rows:
                place, begin = f"line {begin}", rows.line_num + 1
                length = 0
                if not row:
                    continue
                count += 1
                _check_count(count, reading)
                if len(row) != len(header):
                    detail = f"has {len(row)} cells, not the {len(header)} of the header"
                    yield Member(place, None, Refusal(Reason.SYNTAX, "", detail))
                else:
                    yield _read(place, row, table.body, reading)
        except csv.Error as error:
            yield Member(f"line {begin}", None, Refusal(Reason.SYNTAX, "", _unreadable(error)))

    return members()


def _check_utf8(raw: bytes) -> None:
    """Raises Refusal (syntax). A piece at a time: a text in memory is up to four times as long."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for begin in range(0, len(raw), _PIECE_BYTES):
        cut_off, _ = decoder.getstate()
        try:
            decoder.decode(raw[begin : begin + _PIECE_BYTES], begin + _PIECE_BYTES >= len(raw))
        except UnicodeDecodeError as error:
            place = begin - len(cut_off) + error.start
            raise Refusal(Reason.SYNTAX, "", f"byte {place} is not UTF-8") from None


def _unreadable(error: csv.Error) -> str:
    return (
        f"cannot be read from here on: {error}; a cell that begins with a quote ends with one, and a quote"
        ' inside is written twice ("")'
    )


def rows(file: Table, reading: Reading) -> Iterator[Member]:
    """The members of a table whose columns have types. Raises Refusal where it as a whole cannot be read:
    missing_field, unknown_attribute, bad_value, quota, too_large, and whatever its pieces do."""
    table = _Table(file.names, reading)
    _check_count(file.rows, reading)
    _check_unpacked(file.stated_bytes, reading)
    number = unpacked = 0
    for piece in file.pieces:
        unpacked += piece.size
        _check_unpacked(unpacked, reading)
        try:
            columns = piece.columns()
        except _NO_VALUE:
            yield _unreadable_cell(piece.batch, number)
            return
        for cells in zip(*columns, strict=True):
            number += 1
            yield _read(f"row {number}", cells, table.body, reading)


def _check_unpacked(size: int, reading: Reading) -> None:
    most = reading.max_unpacked_bytes
    if size > most:
        detail = f"unpacks to {size} bytes or more (8 for a cell, and its text); max_bulk_bytes allows {most}"
        raise Refusal(Reason.TOO_LARGE, "", f"{detail}: put it as several collections, or raise it")


_NO_VALUE = (ValueError, OverflowError)
"""What Arrow raises where Python has no such value."""


def _unreadable_cell(batch: Any, before: int) -> Member:
    """The first cell that has no value of Python, column by column; so many rows are before the batch."""
    name, column, row = next(
        (name, column, row)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        for row, cell in enumerate(column)
        if not _is_readable(cell)
    )
    detail = (
        f"has a value of the type {column.type} that cannot be read; times are in the years 1 to 9999, in"
        " whole microseconds and a known zone"
    )
    return Member(f"row {before + row + 1}", None, Refusal(Reason.BAD_VALUE, shown(name), detail))


def _is_readable(cell: Any) -> bool:
    """Whether there is a value of Python for one of Arrow."""
    try:
        cell.as_py()
    except _NO_VALUE:
        return False
    return True


Cell = Callable[[Any, dict[str, Any], dict[str, Any]], None]
"""Puts the value of a cell into the body or into the one disjunct of its region."""


class _Table:
    """What the columns of a table mean. Raises Refusal: missing_field, unknown_attribute, bad_value."""

    def __init__(self, columns: Sequence[str], reading: Reading) -> None:
        self._reading = reading
        self._columns = columns
        self._id = reading.id or "id"
        if self._id not in columns:
            raise Refusal(Reason.MISSING_FIELD, self._id, f"there is no column {self._id!r}")
        if len(set(columns)) < len(columns):
            raise Refusal(Reason.BAD_VALUE, "", "a column stands twice in the header")
        circle = (reading.lon, reading.lat, reading.radius)
        self._circle = [columns.index(name) for name in circle] if set(circle) <= set(columns) else []
        self._cells = [(i, self._cell(name)) for i, name in enumerate(columns) if i not in self._circle]
        self._id_column = columns.index(self._id)

    def _cell(self, column: str) -> Cell:
        attributes = self._reading.source.attributes
        name, dot, op = column.rpartition(".")
        if column == self._id:
            return lambda value, body, region: None
        if column in self._reading.tags:
            return lambda value, body, region: body["tags"].update({column: _tag(value, shown(column))})
        if column in _FLAGS:
            return lambda value, body, region: body.update({column: _truth(value)})
        if column in _FIELDS:
            return lambda value, body, region: body.update({column: field_value(column, value)})
        if not dot:
            name, op = column, "eq"
        if name in attributes and op in frozenset(Op):
            number = attributes[name] is AttributeType.NUMBER
            many = op in (Op.IN, Op.NOT_IN)

            def bound(value: Any, body: dict[str, Any], region: dict[str, Any]) -> None:
                values = value.split("|") if many and isinstance(value, str) else value
                if number and not many:
                    values = _number(values, column)
                elif number and isinstance(values, list):
                    values = [_number(one, column) for one in values]
                region.setdefault(name, {})[op] = values

            return bound
        detail = "is neither ATTRIBUTE.OP of the source nor a field of queries; name it in tags, or drop it"
        raise Refusal(Reason.UNKNOWN_ATTRIBUTE, shown(column), detail)

    def body(self, cells: Sequence[Any]) -> Made:
        reading = self._reading
        id = _id(cells[self._id_column], self._id)
        body: dict[str, Any] = {**reading.defaults, "tags": {}}
        region: dict[str, Any] = {}
        try:
            empty = [i for i in self._circle if cells[i] in (None, "")]
            if 0 < len(empty) < len(self._circle):
                named = ", ".join(shown(self._columns[i]) for i in self._circle)
                detail = f"is empty; {named} are a circle together, so fill all of them or none"
                raise Refusal(Reason.MISSING_FIELD, shown(self._columns[empty[0]]), detail)
            if self._circle and not empty:
                lon, lat, radius_m = (
                    _number(_plain(cells[i], self._columns[i]), self._columns[i]) for i in self._circle
                )
                circle = {"lon": lon, "lat": lat, "radius_m": radius_m}
                region[IN] = {CIRCLE: circle, "lon": reading.lon, "lat": reading.lat}
            for i, put in self._cells:
                if cells[i] is not None and cells[i] != "":
                    put(_plain(cells[i], self._columns[i]), body, region)
            if region and "where" in body:
                raise Refusal(Reason.BAD_VALUE, "where", "has a condition and bounds besides; give one")
        except Refusal as refusal:
            return id, refusal
        if region:
            body["where"] = {"any": [region]}
        return id, body


def field_value(name: str, given: Any) -> Any:
    """What a cell or a parameter says of a field of a query, as its body has it. Raises Refusal: syntax."""
    if name in _WORDS and isinstance(given, str):
        return given.split()
    if name in _TIMES and isinstance(given, str) and _WHOLE.fullmatch(given):
        return int(given)
    if name in _TIMES and isinstance(given, float) and given.is_integer():
        return int(given)
    if name == "aggregates" and isinstance(given, str):
        try:
            return load_json(given.encode())
        except Refusal as refusal:
            raise Refusal(refusal.reason, name, refusal.detail) from None
    return given


def _truth(cell: Any) -> Any:
    """True or false; anything else as it is, to be judged with the body."""
    return cell if isinstance(cell, list | dict) else _TRUTHS.get(cell, cell)


_WHOLE = re.compile(r"-?[0-9]{1,18}")


def _plain(cell: Any, column: str) -> Any:
    """A value of a typed column as JSON has it."""
    if cell is None or isinstance(cell, bool | int | float | str):
        return cell
    if isinstance(cell, list):
        return [_plain(one, column) for one in cell]
    if isinstance(cell, dict):
        return {name: _plain(one, column) for name, one in cell.items()}
    if isinstance(cell, date | time):
        return cell.isoformat()
    detail = (
        f"is a column of the type {type(cell).__name__}, which means nothing here; make it numbers or texts"
    )
    raise Refusal(Reason.BAD_VALUE, shown(column), detail)


def _number(cell: Any, column: str) -> Any:
    """The number of a cell, written as in JSON if it is a text. Raises Refusal of the column: not_finite,
    inexact, not_a_number."""
    value = cell
    if isinstance(cell, str):
        try:
            value = load_json(cell.strip().encode())
        except Refusal as refusal:
            if refusal.reason in (Reason.NOT_FINITE, Reason.INEXACT):
                raise Refusal(refusal.reason, shown(column), refusal.detail) from None
            value = None
    if isinstance(value, bool) or not isinstance(value, int | float):
        given_as = repr(shown(cell)) if isinstance(cell, str) else shown(cell)
        detail = f"{given_as} is not a number; write it like 5, -0.5 or 1e3, or leave the cell empty"
        raise Refusal(Reason.NOT_A_NUMBER, shown(column), detail)
    return value
