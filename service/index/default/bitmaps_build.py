"""How the bitmaps are made: group by group, from the spans of the boxes, and back for a check.

Invariant: what is made depends on the boxes in the order given and on nothing else.

Not for: searching (``bitmaps_kernels``).
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from service.index.default.bitmaps_groups import groups_of
from service.index.default.bitmaps_kernels import (
    BLOCK,
    CHUNK,
    HULLS,
    LANES,
    NEAR,
    TILE,
    WORDS,
    Bits,
    Exact,
)
from service.index.default.bitmaps_rows import Rows, chosen_rows
from service.index.default.bitmaps_tiles import tiled
from service.index.default.bitmaps_windows import STEPS, WINDOWS, Spans, Windows
from service.index.default.part import Sparse
from service.index.kernel import kernel, reads, writes

Order = NDArray[np.intp]


def built(boxes: Sparse, spans: Windows, dims: int, room: float) -> tuple[Order, Bits]:
    """The order that the blocks want, and their bitmaps, of about ``room`` bytes a box. ``spans``:
    ``uint8[c, 2]``, in windows. O(c log n)."""
    counts = np.bincount(boxes.attributes, minlength=dims)
    covered = np.bincount(boxes.attributes, spans[:, 1] - spans[:, 0] + 1.0, minlength=dims)
    shares = covered / WINDOWS / np.maximum(counts, 1)
    groups = groups_of(boxes, shares, TILE)
    order = np.argsort(groups.of, kind="stable")
    stops = np.cumsum(np.bincount(groups.of, minlength=len(groups.shared)))
    bitmaps = _Bitmaps()
    first = 0
    for shared, stop in zip(groups.shared, stops.tolist(), strict=True):
        members = order[first:stop]
        frequency = np.zeros(dims, np.int64)
        _tally(boxes.starts, boxes.attributes, members, frequency)
        rows = chosen_rows(len(members), shared, frequency / len(members), shares, tile=TILE, room=room)
        row_of = np.full(dims, -1)
        row_of[rows.attributes] = np.arange(len(rows.attributes))
        dense = np.empty((len(members), len(rows.attributes), 2), np.uint8)
        _spread(boxes.starts, boxes.attributes, spans, members, row_of, dense)
        tiles = tiled(dense, len(shared), TILE)
        order[first:stop] = members[tiles]
        bitmaps.add(first, dense[tiles], len(shared), rows)
        first = stop
    return order, bitmaps.bits()


class _Bitmaps:
    """The bitmaps of the groups so far."""

    def __init__(self) -> None:
        self._blocks: list[list[int]] = []
        self._attributes: list[int] = []
        self._shifts: list[int] = []
        self._lines_of_rows: list[int] = []
        self._hulls: list[NDArray[np.uint64]] = []
        self._lines: list[NDArray[np.uint64]] = []
        self._first_hull = self._first_line = 0

    def add(self, first_box: int, spans: Windows, shared: int, rows: Rows) -> None:
        """A group of n boxes in the order of its tiles, from number ``first_box`` on. ``spans``:
        ``uint8[n, rows, 2]``."""
        first_row = len(self._attributes)
        shifts = [(STEPS * WINDOWS // windows).bit_length() - 1 for windows in rows.windows]
        begins = np.cumsum([0, *rows.windows]).tolist()
        tile_lines = begins.pop()
        self._attributes += rows.attributes
        self._shifts += shifts
        self._lines_of_rows += begins
        for first in range(0, len(spans), BLOCK):
            part = spans[first : first + BLOCK]
            tiles = -(-len(part) // TILE)
            hulls = np.zeros((shared, HULLS), np.uint64)
            lines = np.zeros((tiles * tile_lines, WORDS), np.uint64)
            _fill(part, np.array(shifts, np.uint8), hulls, lines)
            place = [first_box + first, tiles, shared, first_row, len(self._attributes)]
            self._blocks.append([*place, self._first_hull, self._first_line, tile_lines])
            self._first_hull += hulls.size
            self._first_line += len(lines)
            self._hulls.append(hulls.ravel())
            self._lines.append(lines)

    def bits(self) -> Bits:
        return Bits(
            np.array(self._blocks, np.int64).reshape(-1, 8),
            np.array(self._attributes, np.uint8),
            np.array(self._shifts, np.uint8),
            np.array(self._lines_of_rows, np.uint16),
            np.concatenate([*self._hulls, np.zeros(0, np.uint64)]),
            np.concatenate([*self._lines, np.zeros((0, WORDS), np.uint64)]),
        )


def exact(boxes: Sparse, spans: Spans | None, dims: int) -> Exact:
    """The boxes with 2 bytes a box instead of 8 for where they begin, none where that goes without saying;
    with the spans of their entries, if given, beside the attributes, else these in fewest bytes."""
    widths, count = np.diff(boxes.starts), len(boxes)
    if len(boxes) == 0 or (widths == widths[0]).all():
        chunks, offsets = np.empty(0, np.int64), np.empty(0, np.uint16)
    else:
        chunks = boxes.starts[::CHUNK].copy()
        offsets = (boxes.starts - np.repeat(chunks, CHUNK)[: len(boxes.starts)]).astype(np.uint16)
    near, size = boxes.attributes, -(-dims // 8)
    if spans is not None and count and (widths == dims).all():
        near = np.zeros(count * 4 * (dims + 1) + 2 * LANES, np.uint8)
        records = near[: -2 * LANES].reshape(count, -1)
        records[:, : 4 * dims] = (
            spans.reshape(count, dims, 2).transpose(0, 2, 1).reshape(count, -1).view(np.uint8)
        )
        records[:, 4 * dims :] = boxes.slots.reshape(-1, 1).view(np.uint8)
    elif spans is not None:
        near = np.column_stack([near, spans.view(np.uint8)]).ravel()
    elif dims <= 64 and size * len(boxes) < len(boxes.attributes):
        near = np.zeros(size * len(boxes), np.uint8)
        _write_sets(boxes.starts, boxes.attributes, size, near)
    return Exact(chunks, offsets, near, boxes.lo, boxes.hi, boxes.slots)


def as_sparse(boxes: Exact, dims: int) -> Sparse:
    """The reverse. Ends and slots are views, and attributes are one if they are kept as they are."""
    count, entries = len(boxes.slots), len(boxes.lo)
    if len(boxes.offsets):
        starts = np.repeat(boxes.chunks, CHUNK)[: len(boxes.offsets)] + boxes.offsets
    else:
        starts = np.arange(count + 1) * (entries // max(count, 1))
    attributes = boxes.near
    if len(boxes.near) > entries and entries == count * dims:
        attributes = np.tile(np.arange(dims, dtype=np.uint8), count)
    elif len(boxes.near) > entries:
        attributes = boxes.near[::NEAR].copy()
    elif len(boxes.near) < entries:
        attributes = np.empty(entries, np.uint8)
        _read_sets(boxes.near, len(boxes.near) // count, attributes)
    return Sparse(boxes.slots, starts, attributes, boxes.lo, boxes.hi)


def check(boxes: Sparse, spans: Windows, bits: Bits) -> None:
    """Asserts that they are the bitmaps of the boxes. O(size)."""
    first = line = hull = 0
    stops = [*bits.blocks[1:, 0].tolist(), len(boxes)]
    for block, stop in zip(bits.blocks.tolist(), stops if len(bits.blocks) else [], strict=True):
        first_box, tiles, shared, first_row, stop_row, first_hull, first_line, tile_lines = block
        assert (first_box, first_line, first_hull) == (first, line, hull)
        assert -(-(stop - first_box) // TILE) == tiles <= BLOCK // TILE
        assert 0 < shared <= stop_row - first_row
        line, hull, first = first_line + tiles * tile_lines, first_hull + shared * HULLS, stop
        entries = slice(boxes.starts[first_box], boxes.starts[stop])
        owner = np.repeat(np.arange(stop - first_box), np.diff(boxes.starts[first_box : stop + 1]))
        lines = bits.lines[first_line:line].reshape(tiles, tile_lines, -1)
        for j, row in enumerate(range(first_row, stop_row)):
            constrained = boxes.attributes[entries] == bits.attribute[row]
            ends = np.tile(np.array([0, WINDOWS - 1], np.uint8), (stop - first_box, 1))
            ends[owner[constrained]] = spans[entries][constrained]
            shift, begin = int(bits.shift[row]) - 8, int(bits.line[row])
            got = (
                lines[:, begin : begin + (WINDOWS >> shift)].transpose(0, 2, 1).reshape(-1, WINDOWS >> shift)
            )
            assert np.array_equal(got, _columns(_meets(ends, WINDOWS >> shift)))
            if j < shared:
                assert constrained.sum() == stop - first_box
                firsts = np.arange(0, len(ends), TILE)
                around = np.stack(
                    [np.minimum.reduceat(ends[:, 0], firsts), np.maximum.reduceat(ends[:, 1], firsts)], axis=1
                )
                hulls = bits.hulls[first_hull + j * HULLS : first_hull + (j + 1) * HULLS]
                assert np.array_equal(hulls[None], _columns(_meets(around, HULLS))[:1])
    assert (first, line, hull) == (len(boxes), len(bits.lines), len(bits.hulls))


def _meets(ends: Windows, windows: int) -> NDArray[np.bool_]:
    """Which of so many wider windows each span ``uint8[n, 2]`` meets: ``bool[n, windows]``."""
    wider = np.arange(windows)
    each = WINDOWS // windows
    return (ends[:, :1] // each <= wider) & (wider <= ends[:, 1:] // each)


def _columns(bits: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """``bool[n, windows]`` as words of 64 boxes: ``uint64[words, windows]``, whole tiles."""
    whole = np.zeros((-(-len(bits) // TILE) * TILE, bits.shape[1]), np.bool_)
    whole[: len(bits)] = bits
    packed = np.packbits(whole.reshape(-1, 64, bits.shape[1]).transpose(0, 2, 1), axis=2, bitorder="little")
    return np.ascontiguousarray(packed).view("<u8")[:, :, 0]


_STARTS = reads(types.int64, 1)
_ATTRIBUTES = reads(types.uint8, 1)


@kernel(
    types.void(
        reads(types.uint8, 3),
        reads(types.uint8, 1),
        writes(types.uint64, 2),
        writes(types.uint64, 2),
    )
)
def _fill(spans, shift, hulls, lines):  # type: ignore[no-untyped-def]
    """Sets the bits of one block of n boxes. ``spans``: ``uint8[n, rows, 2]``, the first and the last window
    of each box in the attribute of each row; ``hulls``: ``uint64[shared, HULLS]``. O(n rows windows)."""
    boxes, rows, _ = spans.shape
    size = 64 * lines.shape[1]
    line = np.int64(0)
    for tile in range((boxes + size - 1) // size):
        for j in range(rows):
            by = np.int64(shift[j]) - 8
            low, high = np.int64(255), np.int64(0)
            for box in range(size * tile, min(size * tile + size, boxes)):
                first, last = np.int64(spans[box, j, 0]), np.int64(spans[box, j, 1])
                low, high = min(low, first), max(high, last)
                bit = np.uint64(1) << np.uint64(box & 63)
                for window in range(first >> by, (last >> by) + 1):
                    lines[line + window, (box - size * tile) >> 6] |= bit
            line += 256 >> by
            if j < hulls.shape[0]:
                for window in range(low >> 2, (high >> 2) + 1):
                    hulls[j, window] |= np.uint64(1) << np.uint64(tile)


@kernel(types.void(_STARTS, _ATTRIBUTES, types.int64, writes(types.uint8, 1)))
def _write_sets(starts, attributes, size, sets):  # type: ignore[no-untyped-def]
    """Writes the attributes of each box as a set of so many bytes, zeros at first."""
    for i in range(len(starts) - 1):
        for entry in range(starts[i], starts[i + 1]):
            attribute = np.int64(attributes[entry])
            sets[i * size + (attribute >> 3)] |= np.uint8(1 << (attribute & 7))


@kernel(types.void(_ATTRIBUTES, types.int64, writes(types.uint8, 1)))
def _read_sets(sets, size, attributes):  # type: ignore[no-untyped-def]
    """The reverse."""
    entry = 0
    for at in range(len(sets)):
        for bit in range(8):
            if sets[at] >> bit & 1:
                attributes[entry] = 8 * (at % size) + bit
                entry += 1


@kernel(types.void(_STARTS, _ATTRIBUTES, reads(types.int64, 1), writes(types.int64, 1)))
def _tally(starts, attributes, members, frequency):  # type: ignore[no-untyped-def]
    """Adds up how many of the members constrain each attribute."""
    for i in members:
        for entry in range(starts[i], starts[i + 1]):
            frequency[attributes[entry]] += 1


@kernel(
    types.void(
        _STARTS,
        _ATTRIBUTES,
        reads(types.uint8, 2),
        reads(types.int64, 1),
        reads(types.int64, 1),
        writes(types.uint8, 3),
    )
)
def _spread(starts, attributes, spans, members, row_of, dense):  # type: ignore[no-untyped-def]
    """Writes the span of each member in the attribute of each row; a free one is everywhere."""
    for i in range(len(members)):
        dense[i, :, 0] = 0
        dense[i, :, 1] = 255
        for entry in range(starts[members[i]], starts[members[i] + 1]):
            row = row_of[attributes[entry]]
            if row >= 0:
                dense[i, row, 0] = spans[entry, 0]
                dense[i, row, 1] = spans[entry, 1]
