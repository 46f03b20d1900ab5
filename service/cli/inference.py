"""Guesses the attributes of a source from a file of events: what to declare, before anybody has declared it.

A column (a field of NDJSON) is a number if everything in it is one, else a category; nested fields and lists
are left out. Only the first rows are looked at. A guess is for a person to read, or for an offline run; the
service never guesses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from service.cli.files import NUMBER, csv_rows, kind_of, lines_of, parquet_pieces, reading, unzipped

ROWS = 10_000
_NOT_ATTRIBUTES = ("stream_id", "ts")


def infer_attributes(path: Path) -> dict[str, str]:
    """Names and types (``number``, ``category``) of the attributes in a file. Raises CliError."""
    kinds: dict[str, str] = {}
    with reading(path):
        for row in islice(_rows(path), ROWS):
            for name, cell in row.items():
                if name not in _NOT_ATTRIBUTES and cell is not None and not isinstance(cell, dict | list):
                    kind = "number" if _is_number(cell) else "category"
                    kinds[name] = kind if kinds.get(name, kind) == kind else "category"
    return kinds


def _is_number(cell: Any) -> bool:
    if isinstance(cell, str):
        return NUMBER.fullmatch(cell.strip()) is not None
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    kind = kind_of(path)
    if kind == "parquet":
        from service import parquet

        file = parquet.opened(path)
        for piece in parquet_pieces(file):
            for cells in zip(*piece.columns(), strict=True):
                yield _typed(dict(zip(file.schema_arrow.names, cells, strict=True)))
        return
    with path.open("rb") as raw, unzipped(path, raw) as stream:
        if kind == "ndjson":
            yield from _objects(stream)
            return
        rows = csv_rows(stream)
        header: list[str] = next(rows, [])
        for cells in rows:
            yield {name: cell for name, cell in zip(header, cells, strict=False) if cell}


def _objects(lines: Any) -> Iterator[Mapping[str, Any]]:
    for line in lines_of(lines):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        for one in found if isinstance(found, list) else [found]:
            if isinstance(one, dict):
                yield _typed(one)


def _typed(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where a file has types of its own, a text is a category even if it looks like a number."""
    return {name: f"'{cell}'" if isinstance(cell, str) else cell for name, cell in row.items()}
