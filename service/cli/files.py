"""Files of events: CSV, NDJSON and Parquet, the first two gzipped or not, as JSON events of a source.

Columns find their place by name: a column is named like an attribute of the source, ``stream_id`` or ``ts``,
or like the path at which the source looks for one of them or for the id of an event; others are left out. An
empty cell is an attribute that is not there. Numbers keep their digits: a whole number without a point is a
JSON integer. What is no number is sent as text, so that the service refuses it where everybody sees it.
``ts`` may be ISO 8601 (without a zone: UTC). Lines of NDJSON go as they are.

A row that cannot be an event (a line that is no JSON, a row of another length) is a ``BadRow``, never lost
silently.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import msgspec

from service.cli.errors import CliError

if TYPE_CHECKING:
    from service.parquet import Piece

_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NDJSON = (".ndjson", ".jsonl", ".json")
#: A line, a row, and what is in memory of a Parquet file.
_LONGEST_BYTES = 64 << 20

_is_json = msgspec.json.Decoder(msgspec.Raw).decode


class Row(NamedTuple):
    """One event (or, in NDJSON, one array of events) as JSON, and its ``ts`` in ms where the file has one."""

    text: bytes
    ts: int | None


class BadRow(NamedTuple):
    number: int
    detail: str


@dataclass(frozen=True, slots=True)
class Shape:
    """What a file must know of its source: attribute types, and the paths of stream id, time, attributes; and
    of the id of an event, where the source has one."""

    attributes: Mapping[str, str]
    key: str = "stream_id"
    ts: str = "ts"
    paths: Mapping[str, str] | None = None
    event_id: str | None = None

    def path(self, column: str) -> tuple[str, str] | None:
        """Path and type (``key``, ``ts``, ``number``, ``category``, ``id``) of a column, or None for a
        stranger."""
        paths = self.paths or {}
        places = {paths.get(name, name): (name, kind) for name, kind in self.attributes.items()}
        if column in self.attributes:
            return paths.get(column, column), self.attributes[column]
        if column in places:
            return column, places[column][1]
        if column in (self.key, "stream_id"):
            return self.key, "key"
        if column in (self.ts, "ts"):
            return self.ts, "ts"
        return (column, "id") if column == self.event_id else None


class Progress:
    """How far a reader has come: ``done()`` of ``total``, in bytes of the file or in rows."""

    def __init__(self, total: int, done: Callable[[], int]) -> None:
        self.total = total
        self.done = done


def kind_of(path: Path) -> str:
    """``csv``, ``ndjson`` or ``parquet``, by the name. Raises CliError."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    last = suffixes[-1] if suffixes else ""
    if last == ".csv":
        return "csv"
    if last in _NDJSON:
        return "ndjson"
    if last == ".parquet" and path.suffix.lower() == ".parquet":
        return "parquet"
    raise CliError(
        f"{path}: the name must end in .csv, .ndjson, .jsonl or .json (also with .gz), or in .parquet"
    )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What goes wrong while a file is read, as a CliError."""
    import pyarrow

    try:
        yield
    except BrokenPipeError:
        raise  # that is our output, not the file
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, pyarrow.ArrowException) as error:
        raise CliError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


@contextmanager
def opened(path: Path, shape: Shape) -> Iterator[tuple[Iterator[Row | BadRow], Progress]]:
    """The rows of a file and how far they are. Raises CliError on a file that cannot be read at all."""
    kind = kind_of(path)
    with reading(path):
        if kind == "parquet":
            yield _parquet(path, shape)
            return
        with path.open("rb") as raw, unzipped(path, raw) as stream:
            progress = Progress(path.stat().st_size, raw.tell)
            yield (_ndjson(stream, shape) if kind == "ndjson" else _csv(stream, shape)), progress


@contextmanager
def unzipped(path: Path, raw: IO[bytes]) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked if its name ends in .gz."""
    if path.suffix.lower() != ".gz":
        yield raw
        return
    with gzip.GzipFile(fileobj=raw) as stream:
        yield stream  # type: ignore[misc]


def lines_of(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file. Raises CliError on one that no service takes: a small .gz may be a long one."""
    number = 0
    while line := stream.readline(_LONGEST_BYTES + 1):
        number += 1
        if len(line) > _LONGEST_BYTES:
            raise CliError(f"line {number} is longer than {_LONGEST_BYTES} bytes: no service takes that")
        yield line


def csv_rows(stream: IO[bytes]) -> Any:
    """A strict csv.reader over bytes: UTF-8, with or without a byte order mark."""

    def lines() -> Iterator[str]:
        for number, line in enumerate(lines_of(stream)):
            text = line.decode()
            yield text if number else text.removeprefix("\ufeff")

    return csv.reader(lines(), strict=True)


def _ndjson(stream: IO[bytes], shape: Shape) -> Iterator[Row | BadRow]:
    path = shape.ts.split(".")
    for number, line in enumerate(lines_of(stream), 1):
        text = line.strip()
        if not text:
            continue
        try:
            _is_json(text)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            yield BadRow(number, str(error))
            continue
        yield Row(text, _ts_of(text, path))


def _ts_of(text: bytes, path: Sequence[str]) -> int | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _csv(stream: IO[bytes], shape: Shape) -> Iterator[Row | BadRow]:
    rows = csv_rows(stream)
    header: list[str] = next(rows, [])
    template = Template(header, shape)
    for cells in rows:
        if len(cells) == len(header):
            yield template.row(cells)
        elif cells:
            yield BadRow(rows.line_num, f"{len(cells)} cells under a header of {len(header)}")


def parquet_pieces(file: Any) -> Iterator[Piece]:
    """The rows of a Parquet file, as many at a time as are not much in memory. Raises CliError on a row that
    is."""
    from service import parquet

    row = 0
    for piece in parquet.pieces(file, _LONGEST_BYTES):
        if piece.size > _LONGEST_BYTES:
            raise CliError(f"row {row + 1} unpacks to {piece.size} bytes: no service takes that")
        row += len(piece.batch)
        yield piece


def _parquet(path: Path, shape: Shape) -> tuple[Iterator[Row | BadRow], Progress]:
    from service import parquet

    file = parquet.opened(path)
    template = Template(file.schema_arrow.names, shape)
    done = 0

    def rows() -> Iterator[Row | BadRow]:
        nonlocal done
        for piece in parquet_pieces(file):
            for cells in zip(*piece.columns(), strict=True):
                done += 1
                yield template.row(cells)

    return rows(), Progress(file.metadata.num_rows, lambda: done)


class Template:
    """Builds the JSON of a row. Columns keep their order; nested paths become nested objects."""

    def __init__(self, columns: Sequence[str], shape: Shape) -> None:
        self._tree: dict[str, Any] = {}
        self._ts: int | None = None
        found = {name: place for name in columns if (place := shape.path(name)) is not None}
        kinds = {kind for _, kind in found.values()}
        if "key" not in kinds:
            raise CliError(
                f"there is no column {shape.key!r} (or stream_id) among {', '.join(columns) or 'none'}"
            )
        if not kinds & {"number", "category"}:
            raise CliError(f"none of the columns {', '.join(columns)} is an attribute of the source")
        for number, name in enumerate(columns):
            if name in found:
                self._place(number, *found[name])

    def _place(self, number: int, path: str, kind: str) -> None:
        *outer, last = path.split(".")
        node = self._tree
        for part in outer:
            node = node.setdefault(part, {})
        node[last] = (number, _LITERAL[kind])
        if kind == "ts":
            self._ts = number

    def row(self, cells: Sequence[Any]) -> Row:
        text = _object(self._tree, cells) or "{}"
        ts = None if self._ts is None else _timestamp(cells[self._ts])
        return Row(text.encode(), int(ts) if ts is not None and ts.lstrip("-").isdigit() else None)


def _object(tree: Mapping[str, Any], cells: Sequence[Any]) -> str | None:
    parts = []
    for name, node in tree.items():
        if isinstance(node, dict):
            literal = _object(node, cells)
        else:
            number, literal_of = node
            literal = literal_of(cells[number])
        if literal is not None:
            parts.append(f"{json.dumps(name)}:{literal}")
    return "{" + ",".join(parts) + "}" if parts else None


def _text(cell: Any) -> str | None:
    """A JSON text; None for a cell that is empty."""
    return None if cell is None or cell == "" else json.dumps(str(cell))


def _number(cell: Any) -> str | None:
    """A JSON number where the cell is one, else its text."""
    if cell is None or cell == "":
        return None
    if isinstance(cell, bool):
        return "true" if cell else "false"
    text = str(cell).strip() if isinstance(cell, str | int | Decimal) else repr(cell)
    if _JSON_NUMBER.fullmatch(text):
        return text
    if not NUMBER.fullmatch(text):
        return json.dumps(text)
    if text.lstrip("+-").isdigit():
        return str(int(text))
    number = float(text)
    return repr(number) if math.isfinite(number) else json.dumps(text)


def _timestamp(cell: Any) -> str | None:
    """Whole ms where the cell is a time, else as a number or a text, for the service to refuse."""
    if isinstance(cell, str) and not NUMBER.fullmatch(cell.strip()):
        try:
            cell = datetime.fromisoformat(cell.strip())
        except ValueError:
            return _text(cell)
    if isinstance(cell, date) and not isinstance(cell, datetime):
        cell = datetime(cell.year, cell.month, cell.day, tzinfo=UTC)
    if isinstance(cell, datetime):
        aware = cell if cell.tzinfo else cell.replace(tzinfo=UTC)
        return str(round(aware.timestamp() * 1000))
    return _number(cell)


_LITERAL: Mapping[str, Callable[[Any], str | None]] = {
    "key": _text,
    "category": _text,
    "id": _text,
    "number": _number,
    "ts": _timestamp,
}
