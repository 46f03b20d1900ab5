"""Parquet files as rows of Python values, a few at a time, whatever they unpack to.

Idea: what a file repeats costs it next to nothing, so its length says nothing of what comes out: a text of
20 kB in 200,000 rows, or a number in a million cells of a list, is a file of a few hundred kB. Two measures
are taken before anything of that size is made. ``stated_bytes`` is what the file says of itself: its pages
unpacked, and its cells at their width. ``pieces`` reads texts as the dictionaries that they are written as,
so that each is there once, and counts the rows of them before they become rows: what is given out at a time
is bounded, or is one row.

Invariant: the size of a piece is that of all its cells, 8 bytes each (or the width of its type), besides
the bytes of the texts, as often as they stand there.

Not for: what columns mean (``members``, ``cli.files``). A file whose pages say other sizes than its footer,
or that is bent otherwise, is Arrow's to judge, which may be the end of the process: files of others are read
by ``parquet_process`` only. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow
import pyarrow.compute
import pyarrow.parquet

_ROWS = 10_000
_CELL_BYTES = 8


class Piece(NamedTuple):
    """Rows that follow each other, and the bytes that they come to as Python values."""

    batch: Any
    size: int

    def columns(self) -> list[list[Any]]:
        """The cells as Python values, column by column. Raises ValueError or OverflowError where Python has
        no such value, ArrowException."""
        return [whole(column).to_pylist() for column in self.batch.columns]


class Table(NamedTuple):
    """A file: its columns, its rows and the least that they come to, and they themselves, in order."""

    names: list[str]
    rows: int
    stated_bytes: int
    pieces: Iterator[Piece]


def opened(source: Any) -> Any:
    """The ParquetFile of a path or buffer, whose texts stay in dictionaries. Raises ArrowException,
    OSError."""
    metadata = pyarrow.parquet.read_metadata(source)
    texts = [
        leaf.path
        for leaf in map(metadata.schema.column, range(metadata.num_columns))
        if leaf.physical_type == "BYTE_ARRAY" and leaf.logical_type.type != "DECIMAL"
    ]
    return pyarrow.parquet.ParquetFile(source, metadata=metadata, read_dictionary=texts)


def stated_bytes(file: Any) -> int:
    """The least that a file comes to, by its own metadata. O(columns of all row groups)."""
    found = file.metadata
    widths = [_width(file.schema.column(i)) for i in range(found.num_columns)]
    groups = [found.row_group(i) for i in range(found.num_row_groups)]
    unpacked: int = sum(group.total_byte_size for group in groups)
    cells: int = sum(group.column(i).num_values * width for group in groups for i, width in enumerate(widths))
    return max(unpacked, cells)


def _width(leaf: Any) -> int:
    fixed: int = leaf.length if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else 0
    return max(fixed, _CELL_BYTES)


def pieces(file: Any, most_bytes: int) -> Iterator[Piece]:
    """All rows of a file in order, in pieces of ``most_bytes`` at the most, or of one row. Raises
    ArrowException, OSError."""
    # Row groups have dictionaries of their own: Arrow cannot make one batch of lists of texts from two.
    for group in range(file.num_row_groups):
        for batch in file.iter_batches(_ROWS, row_groups=[group]):
            yield from _cut(batch, most_bytes)


def _cut(batch: Any, most_bytes: int) -> Iterator[Piece]:
    size = sum(map(_size, batch.columns))
    if size <= most_bytes or len(batch) < 2:
        yield Piece(batch, size)
        return
    middle = len(batch) // 2
    yield from _cut(batch.slice(0, middle), most_bytes)
    yield from _cut(batch.slice(middle), most_bytes)


def _size(array: Any) -> int:
    """The bytes of the cells of an Arrow array: those in lists and structs each for itself."""
    kind = array.type
    if pyarrow.types.is_dictionary(kind):
        lengths = pyarrow.compute.binary_length(array.dictionary).take(array.indices)
        texts: int = pyarrow.compute.sum(lengths.cast(pyarrow.int64())).as_py() or 0
        return _CELL_BYTES * len(array) + texts
    if pyarrow.types.is_nested(kind):
        return _CELL_BYTES * len(array) + sum(map(_size, _inner(array)))
    if pyarrow.types.is_fixed_size_binary(kind):
        width: int = max(kind.byte_width, _CELL_BYTES)
        return width * len(array)
    return _CELL_BYTES * len(array)


def _inner(array: Any) -> list[Any]:
    """What the lists, structs or maps of an array hold."""
    if pyarrow.types.is_map(array.type):
        begin, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return [part.slice(begin, end - begin) for part in (array.keys, array.items)]
    found = array.flatten()
    return found if isinstance(found, list) else [found]


def whole(array: Any) -> Any:
    """An array without its dictionary, which Python would look each cell up in."""
    return array.dictionary_decode() if pyarrow.types.is_dictionary(array.type) else array
